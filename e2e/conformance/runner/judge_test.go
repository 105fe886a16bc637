package main

import (
	"errors"
	"testing"
)

func results(pairs ...string) []result {
	var all []result
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, result{test: pairs[i], verdict: pairs[i+1], mark: "-"})
	}
	return all
}

func TestJudgeTellsWhatIsOursFromWhatIsExcepted(t *testing.T) {
	base := baseline{
		"TestA": "PASS", "TestA/x": "PASS", "TestA/y": "PASS",
		"TestB": "PASS", "TestC": "FAIL", "TestD": "PASS", "TestE": "PASS", "TestE/gone": "PASS",
	}
	got := results("TestA", "FAIL", "TestA/x", "FAIL", "TestA/y", "PASS",
		"TestB", "SKIP", "TestC", "FAIL", "TestD", "PASS", "TestE", "PASS")
	tests := []string{"TestA", "TestB", "TestC", "TestD", "TestE"}

	v := judge(tests, got, base, exceptions{"TestA/x": "why", "TestD": "why"})
	names := func(rs []result) (out []string) {
		for _, r := range rs {
			out = append(out, r.verdict+" "+r.test)
		}
		return out
	}
	equal(t, names(v.regressed), []string{"SKIP TestB", "MISSING TestE/gone"})
	equal(t, v.known, []string{"TestA"})
	equal(t, v.stale, []string{"TestD"})
	if !v.failed() || v.passed != 2 || v.skipped != 1 {
		t.Errorf("%+v", v)
	}

	// A part that fails on etcd as well does not count.
	v = judge([]string{"TestA"}, append(got, results("TestA/z", "FAIL")...), base, exceptions{"TestA/x": "why"})
	equal(t, names(v.regressed), nil)

	v = judge(tests, got, base, exceptions{"TestB": "why", "TestE": "why"})
	equal(t, names(v.regressed), []string{"FAIL TestA", "FAIL TestA/x"})
}

func TestAnExceptionMustNameWhatPassesOnEtcd(t *testing.T) {
	known := exceptions{"TestC": "why"}
	if known.allIn(baseline{"TestC": "FAIL"}) == nil || known.allIn(baseline{}) == nil {
		t.Error("an exception that excepts nothing was taken")
	}
	if err := known.allIn(baseline{"TestC": "PASS"}); err != nil {
		t.Error(err)
	}
}

func TestParseReadsVerdictsAndWhatIsMissing(t *testing.T) {
	text := "\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n\x16=== RUN   TestA/y\n" +
		"log \x16    --- PASS: TestA/x (0.50s)\npanic: test timed out after 1s\n"
	got := parse([]byte(text), "TestA", errors.New("exit status 2"))
	equal(t, got, []result{
		{verdict: "FAIL", test: "TestA", why: "panic: test timed out"},
		{verdict: "PASS", test: "TestA/x", seconds: 0.5},
		{verdict: "FAIL", test: "TestA/y", why: "did not end"},
	})
	passed := "\x16=== RUN   TestB\n\x16--- PASS: TestB (1.00s)\n"
	equal(t, parse([]byte(passed), "TestB", nil), []result{{verdict: "PASS", test: "TestB", seconds: 1}})
	// A process that fails after its test passed (a leak found at the end) has failed.
	if r := parse([]byte(passed), "TestB", errors.New("exit status 1"))[0]; r.verdict != "FAIL" {
		t.Errorf("%+v", r)
	}
}

func equal[T comparable](t *testing.T, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
}
