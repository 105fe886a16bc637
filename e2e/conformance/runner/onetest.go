package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// result is the outcome of a test or of a subtest ("Test/sub").
type result struct {
	verdict, test string
	seconds       float64
	// mark is "server" when the test started the server under test, else "-".
	mark string
	why  string
}

// runTest runs one top-level test, again if asked to, and returns its result
// first and those of its subtests after it.
func runTest(o options, test string) []result {
	var found []result
	for try := 0; try <= o.retries; try++ {
		name := test + ".log"
		if try > 0 {
			name = fmt.Sprintf("%s.retry%d.log", test, try)
		}
		found = runOnce(o, test, filepath.Join(o.out, "log", name))
		if found[0].verdict != "FAIL" {
			if try > 0 {
				found[0].why = fmt.Sprintf("passed on retry %d", try)
			}
			break
		}
	}
	return found
}

// grace is what the test framework gets to end by itself and to say where it hung.
const grace = 15 * time.Second

func runOnce(o options, test, logPath string) []result {
	log, err := os.Create(logPath)
	if err != nil {
		return []result{{verdict: "FAIL", test: test, mark: "-", why: err.Error()}}
	}
	defer log.Close()
	used := logPath + ".used"
	defer os.Remove(used)
	// A test that is killed does not clean up. The name is short, since sockets are made below it.
	scratch, err := os.MkdirTemp("", "c")
	if err != nil {
		return []result{{verdict: "FAIL", test: test, mark: "-", why: err.Error()}}
	}
	defer os.RemoveAll(scratch)
	argv := []string{
		o.binary, "-test.run", "^" + regexp.QuoteMeta(test) + "$", "-test.v=test2json",
		"-test.count=1", "-test.timeout", o.limit.String(),
	}
	argv = append(argv, o.args...)
	if o.ownNetwork {
		argv = append([]string{"unshare", "-rn", "sh", "-c", `ip link set lo up && exec "$0" "$@"`}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), "STORE_USED="+used, "TMPDIR="+scratch)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := running.start(cmd); err != nil {
		return []result{{verdict: "FAIL", test: test, mark: "-", why: err.Error()}}
	}
	watchdog := time.AfterFunc(o.limit+grace, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	failure := cmd.Wait()
	watchdog.Stop()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	running.remove(cmd.Process.Pid)
	endOrphans()
	mark := "-"
	if info, err := os.Stat(used); err == nil && info.Size() > 0 {
		mark = "server"
	}
	text, err := os.ReadFile(logPath)
	if err != nil {
		return []result{{verdict: "FAIL", test: test, mark: mark, why: err.Error()}}
	}
	found := parse(text, test, failure)
	for i := range found {
		found[i].mark = mark
	}
	if found[0].seconds == 0 {
		found[0].seconds = time.Since(began).Seconds()
	}
	return found
}

// Each line of the test framework starts with the byte 0x16.
var (
	verdictLine = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)
	runLine     = regexp.MustCompile(`^ *=== RUN +(\S+)`)
)

// parse reads the verdicts out of a test's output. A test without one, or whose
// process failed all the same, has failed.
func parse(text []byte, test string, failure error) []result {
	top := result{verdict: "FAIL", test: test}
	seen := false
	var subs []result
	begun := []string{}
	ended := map[string]bool{}
	for _, piece := range bytes.Split(text, []byte{0x16})[1:] {
		line, _, _ := bytes.Cut(piece, []byte{'\n'})
		if m := verdictLine.FindSubmatch(line); m != nil {
			seconds, _ := strconv.ParseFloat(string(m[3]), 64)
			r := result{verdict: string(m[1]), test: string(m[2]), seconds: seconds}
			ended[r.test] = true
			if r.test == test {
				top, seen = r, true
			} else {
				subs = append(subs, r)
			}
		} else if m := runLine.FindSubmatch(line); m != nil {
			begun = append(begun, string(m[1]))
		}
	}
	if !seen || (top.verdict != "FAIL" && failure != nil) {
		top.verdict, top.why = "FAIL", cause(text, failure)
	}
	for _, name := range begun {
		if name != test && !ended[name] {
			subs = append(subs, result{verdict: "FAIL", test: name, why: "did not end"})
		}
	}
	return append([]result{top}, subs...)
}

func cause(text []byte, failure error) string {
	for _, sign := range []string{"panic: test timed out", "fatal error: ", "panic: "} {
		if bytes.HasPrefix(text, []byte(sign)) || bytes.Contains(text, []byte("\n"+sign)) {
			return strings.TrimSpace(strings.TrimSuffix(sign, ": "))
		}
	}
	if failure != nil {
		return failure.Error()
	}
	return "no verdict"
}
