package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

// writeResults writes verdict, test, seconds, mark and why, one line each.
func writeResults(path string, results []result) error {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s\t%s\t%.2f\t%s\t%s\n", r.verdict, r.test, r.seconds, r.mark, r.why)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// writeBaseline writes what this run found. Where the baseline has a test
// already, what did not end the same way both times becomes FLAKY and counts no more.
func writeBaseline(o options, tests []string, results []result) error {
	lines, err := readLines(o.baseline)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	chosen := map[string]bool{}
	for _, t := range tests {
		chosen[t] = true
	}
	var kept []string
	old, hadTop := map[string]string{}, map[string]bool{}
	for _, line := range lines {
		field := strings.Split(line, "\t")
		if len(field) != 4 {
			return fmt.Errorf("%s: %q is not verdict, package, test, mark", o.baseline, line)
		}
		top := topOf(field[2])
		if field[1] != o.pkg || !chosen[top] {
			kept = append(kept, line)
			continue
		}
		old[field[2]], hadTop[top] = field[0], true
	}
	for _, r := range results {
		verdict := r.verdict
		if hadTop[topOf(r.test)] && old[r.test] != verdict {
			verdict = "FLAKY"
		}
		delete(old, r.test)
		kept = append(kept, strings.Join([]string{verdict, o.pkg, r.test, r.mark}, "\t"))
	}
	for test := range old {
		kept = append(kept, strings.Join([]string{"FLAKY", o.pkg, test, "-"}, "\t"))
	}
	sort.Slice(kept, func(i, j int) bool { return place(kept[i]) < place(kept[j]) })
	head := "# What the tests did on a real etcd: verdict, package, test, whether it said that it started\n" +
		"# the server. FLAKY: not the same every time. Written by runner -write-baseline.\n"
	return os.WriteFile(o.baseline, []byte(head+strings.Join(kept, "\n")+"\n"), 0o644)
}

// place is a baseline line without its verdict, to sort by.
func place(line string) string {
	_, rest, _ := strings.Cut(line, "\t")
	return rest
}

// topOf is the top-level test that a test is or is a part of.
func topOf(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return top
}
