package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Tests start servers in sessions of their own, where killing the test's process
// group does not reach. Since this process is made the parent of whatever loses
// its own, a child of ours that is no test is something a test left behind.

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER of Linux.
const prSetChildSubreaper = 36

func adoptOrphans() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
	if errno != 0 {
		return fmt.Errorf("prctl(PR_SET_CHILD_SUBREAPER): %w", errno)
	}
	return nil
}

type pidSet struct {
	mu   sync.Mutex
	pids map[int]bool
}

// running holds the tests' own processes.
var running = pidSet{pids: map[int]bool{}}

// start starts a test; nobody may take it for an orphan meanwhile.
func (s *pidSet) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	s.pids[cmd.Process.Pid] = true
	return nil
}

func (s *pidSet) remove(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pids, pid)
}

// endOrphans kills and collects what finished tests left behind.
func endOrphans() {
	running.mu.Lock()
	defer running.mu.Unlock()
	me := os.Getpid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", me, me))
	children := strings.Fields(string(text))
	if err != nil || len(children) == 0 {
		children = childrenOf(me)
	}
	for _, field := range children {
		pid, err := strconv.Atoi(field)
		if err != nil || running.pids[pid] {
			continue
		}
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
	}
}

// childrenOf looks through /proc, since a child belongs to one of our threads.
func childrenOf(parent int) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything; the parent comes two fields after it.
		at := strings.LastIndexByte(string(stat), ')')
		if at < 0 {
			continue
		}
		fields := strings.Fields(string(stat[at+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			found = append(found, e.Name())
		}
	}
	return found
}
