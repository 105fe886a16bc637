package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strings"
)

// baseline is what the tests of one package did on etcd: test to verdict.
type baseline map[string]string

// exceptions are tests that cannot apply, with the reason; one covers its subtests.
type exceptions map[string]string

// verdicts is a run, judged.
type verdicts struct {
	passed, skipped int
	// known failed as the exceptions say.
	known []string
	// regressed passes on etcd and did not here.
	regressed []result
	// stale is an exception whose test passes.
	stale []string
}

func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []string
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		if line := scan.Text(); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, scan.Err()
}

func readBaseline(path, pkg string) (baseline, error) {
	lines, err := readLines(path)
	if err != nil {
		return nil, err
	}
	base := baseline{}
	for _, line := range lines {
		field := strings.Split(line, "\t")
		if len(field) < 3 {
			return nil, fmt.Errorf("%s: %q is not verdict, package, test", path, line)
		}
		if field[1] == pkg {
			base[field[2]] = field[0]
		}
	}
	if len(base) == 0 {
		return nil, fmt.Errorf("%s has nothing about %s", path, pkg)
	}
	return base, nil
}

func readExceptions(path, pkg string) (exceptions, error) {
	known := exceptions{}
	if path == "" {
		return known, nil
	}
	lines, err := readLines(path)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		field := strings.Split(line, "\t")
		if len(field) != 3 || strings.TrimSpace(field[2]) == "" {
			return nil, fmt.Errorf("%s: %q is not package, test, reason", path, line)
		}
		test, reason := field[1], field[2]
		if field[0] != pkg {
			continue
		}
		if _, twice := known[test]; twice {
			return nil, fmt.Errorf("%s: %s is listed twice", path, test)
		}
		known[test] = reason
	}
	return known, nil
}

// allIn refuses exceptions for what does not exist or does not pass on etcd either.
func (known exceptions) allIn(base baseline) error {
	for test := range known {
		if base[test] != "PASS" {
			return fmt.Errorf("exception %s: the baseline has no such test that passes; take it out of the list", test)
		}
	}
	return nil
}

// covers says whether the test or one it is a part of is listed.
func (known exceptions) covers(test string) bool {
	for {
		if _, ok := known[test]; ok {
			return true
		}
		at := strings.LastIndexByte(test, '/')
		if at < 0 {
			return false
		}
		test = test[:at]
	}
}

// judge compares what was run with both lists.
func judge(tests []string, results []result, base baseline, known exceptions) verdicts {
	got := map[string]result{}
	for _, r := range results {
		got[r.test] = r
	}
	chosen := map[string]bool{}
	for _, t := range tests {
		chosen[t] = true
	}
	var v verdicts
	for _, r := range results {
		if strings.Contains(r.test, "/") {
			continue
		}
		switch r.verdict {
		case "PASS":
			v.passed++
		case "SKIP":
			v.skipped++
		}
	}
	var names []string
	for test, verdict := range base {
		top := topOf(test)
		if verdict == "PASS" && chosen[top] {
			names = append(names, test)
		}
	}
	sort.Strings(names)
	for _, test := range names {
		r, ran := got[test]
		if !ran {
			r = result{verdict: "MISSING", test: test}
		}
		switch {
		case r.verdict == "PASS":
			if _, listed := known[test]; listed {
				v.stale = append(v.stale, test)
			}
		case known.covers(test) || onlyKnownBelow(test, results, base, known):
			if !strings.Contains(test, "/") {
				v.known = append(v.known, test)
			}
		default:
			v.regressed = append(v.regressed, r)
		}
	}
	return v
}

// onlyKnownBelow says that a test failed by its subtests alone, and each of those is listed or does
// not pass on etcd either.
func onlyKnownBelow(test string, results []result, base baseline, known exceptions) bool {
	below := 0
	for _, r := range results {
		if r.verdict != "FAIL" || !strings.HasPrefix(r.test, test+"/") {
			continue
		}
		below++
		if base[r.test] == "PASS" && !known.covers(r.test) && !onlyKnownBelow(r.test, results, base, known) {
			return false
		}
	}
	return below > 0
}

func (v verdicts) failed() bool { return len(v.regressed)+len(v.stale) > 0 }

func (v verdicts) print(o options) {
	for _, r := range v.regressed {
		fmt.Printf("%s: %s %s passes on etcd%s\n", o.suite, r.verdict, r.test, because(r.why))
	}
	for _, test := range v.stale {
		fmt.Printf("%s: %s passes now: take it out of %s\n", o.suite, test, o.exceptions)
	}
}

// summarize appends suite, passed, failed, skipped, known.
func (v verdicts) summarize(o options) error {
	f, err := os.OpenFile(o.summary, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	failed := map[string]bool{}
	for _, r := range v.regressed {
		top := topOf(r.test)
		failed[top] = true
	}
	for _, test := range v.stale {
		failed[test+" (stale)"] = true
	}
	_, err = fmt.Fprintf(f, "%s\t%d\t%d\t%d\t%d\n", o.suite, v.passed, len(failed), v.skipped, len(v.known))
	return err
}
