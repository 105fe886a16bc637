// Command runner runs the tests of a compiled Go test binary one by one, each
// in a process of its own, and compares what comes out with what the same tests
// did on a real etcd.
//
// A test that hangs or panics costs only itself, and what it leaves running is
// ended before the next. The outcome is judged against two lists: the baseline
// (what passes on etcd) and the exceptions (what cannot apply to this store,
// each with a reason). A test that passes on etcd and fails here fails the run
// unless it is an exception; an exception that passes fails the run as well, so
// that the list stays true.
//
// It knows nothing of etcd or of the server under test.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

type options struct {
	binary, dir, pkg, out       string
	baseline, exceptions, suite string
	run, summary                string
	jobs, retries               int
	limit                       time.Duration
	ownNetwork, write           bool
	args                        []string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "compiled test binary")
	flag.StringVar(&o.dir, "dir", ".", "folder the tests run in")
	flag.StringVar(&o.pkg, "pkg", "", "package, as the baseline names it")
	flag.StringVar(&o.suite, "suite", "", "name in the summary")
	flag.StringVar(&o.out, "out", "", "folder for results.tsv and a log a test")
	flag.StringVar(&o.baseline, "baseline", "", "what passes on etcd")
	flag.StringVar(&o.exceptions, "exceptions", "", "package, test, reason: what cannot apply")
	flag.StringVar(&o.run, "run", ".", "only top-level tests whose name matches")
	flag.StringVar(&o.summary, "summary", "", "file that gets one line about this run")
	flag.IntVar(&o.jobs, "jobs", 1, "tests at once")
	flag.IntVar(&o.retries, "retries", 0, "further tries of a failed test; a pass on a retry is said")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "longest time of a top-level test")
	flag.BoolVar(&o.ownNetwork, "own-network", false, "a loopback of its own for each test (Linux)")
	flag.BoolVar(&o.write, "write-baseline", false, "write the baseline instead of comparing")
	flag.Parse()
	o.args = flag.Args()
	failed, err := execute(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// execute runs and judges; failed says that the outcome is not as it should be.
func execute(o options) (failed bool, err error) {
	if o.out, err = filepath.Abs(o.out); err != nil {
		return false, err
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Join(o.out, "log"), 0o755); err != nil {
		return false, err
	}
	if err := adoptOrphans(); err != nil {
		return false, err
	}
	tests, err := list(o)
	if err != nil {
		return false, err
	}
	if len(tests) == 0 {
		return false, fmt.Errorf("no test of %s matches %q", o.pkg, o.run)
	}
	results := runAll(o, tests)
	if err := writeResults(filepath.Join(o.out, "results.tsv"), results); err != nil {
		return false, err
	}
	if o.write {
		return false, writeBaseline(o, tests, results)
	}
	base, err := readBaseline(o.baseline, o.pkg)
	if err != nil {
		return false, err
	}
	known, err := readExceptions(o.exceptions, o.pkg)
	if err != nil {
		return false, err
	}
	// An exception for a test that no longer exists would hide its successor's failure.
	if o.run == "." {
		if err := known.allIn(base); err != nil {
			return false, err
		}
	}
	v := judge(tests, results, base, known)
	v.print(o)
	if o.summary != "" {
		if err := v.summarize(o); err != nil {
			return false, err
		}
	}
	return v.failed(), nil
}

// list asks the binary which top-level tests it has.
func list(o options) ([]string, error) {
	if _, err := regexp.Compile(o.run); err != nil {
		return nil, fmt.Errorf("-run %q: %w", o.run, err)
	}
	cmd := exec.Command(o.binary, append([]string{"-test.list", o.run}, o.args...)...)
	cmd.Dir = o.dir
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w", o.binary, err)
	}
	var tests []string
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "Test") {
			tests = append(tests, line)
		}
	}
	return tests, nil
}

// runAll returns the results of every test in the order of the list.
func runAll(o options, tests []string) []result {
	type job struct {
		at   int
		name string
	}
	jobs := make(chan job)
	found := make([][]result, len(tests))
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range max(o.jobs, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range jobs {
				r := runTest(o, j.name)
				mu.Lock()
				found[j.at] = r
				done++
				fmt.Printf("%s %d/%d: %s %s %.1fs%s\n", o.suite, done, len(tests),
					r[0].verdict, r[0].test, r[0].seconds, because(r[0].why))
				mu.Unlock()
			}
		}()
	}
	for i, t := range tests {
		jobs <- job{i, t}
	}
	close(jobs)
	wg.Wait()
	var all []result
	for _, r := range found {
		all = append(all, r...)
	}
	return all
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}
