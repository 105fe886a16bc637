// Added to etcd's package tests/framework/integration (a copy of it): calls of clients to a member
// reach a store in a process of its own, instead of the etcd in the test's process.
//
// The etcd in the test's process still starts, elects a leader and answers its peers, so that what
// waits for those goes on; no client's call reaches it. Members of one cluster are addresses of one
// store. A member that stops drops its connections; the store itself stops with the last of them
// and starts again on its directory with the first. A member that starts with other settings than
// the store has (tests give one a quota) has it start again with these.
//
// STORE_START is the start command with {DIR} {CPORT} {PROGRESS} {OPS} {BYTES} {QUOTA}, and
// STORE_START_TLS with {CERT} {KEY} {CA} as well.
package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
)

// store is one external process, shared by the members of a cluster.
type store struct {
	mu      sync.Mutex
	users   int
	dir     string
	port    int
	command string // without the port
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has been waited for
}

// stores are by the cluster's peer addresses, which all its members name alike.
var stores sync.Map

// serveElsewhere starts the member's store if it is the first, and forwards its listener to it.
func (m *Member) serveElsewhere() error {
	found, _ := stores.LoadOrStore(m.InitialPeerURLsMap.String(), &store{})
	s := found.(*store)
	if err := s.enter(m); err != nil {
		return err
	}
	listener := m.GRPCListener
	var connections sync.Map
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Store(client, nil)
			go func() {
				defer connections.Delete(client)
				forward(client, s.address())
			}()
		}
	}()
	m.ServerClosers = append(m.ServerClosers, func() {
		listener.Close()
		connections.Range(func(client, _ any) bool {
			client.(net.Conn).Close()
			return true
		})
		s.leave()
	})
	return nil
}

// forward carries bytes both ways until either end is gone.
func forward(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(plain{server}, client)
		server.Close()
	}()
	io.Copy(plain{client}, server)
}

// plain hides that a connection can be spliced to: the runtime's pipes are closed some time after
// the test, and whoever looks for goroutines that were left finds one at it.
type plain struct{ io.Writer }

// address waits for a store that is starting.
func (s *store) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("127.0.0.1:%d", s.port)
}

func (s *store) enter(m *Member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		s.dir = m.DataDir + ".store"
	}
	s.users++
	command := s.commandFor(m)
	if s.users > 1 && command == s.command {
		return nil
	}
	s.stop()
	s.command = command
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	s.cmd = exec.Command("sh", "-c", strings.ReplaceAll(command, "{CPORT}", strconv.Itoa(s.port)))
	s.cmd.Stdout, s.cmd.Stderr = os.Stdout, os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	return s.ready()
}

// commandFor starts a store with the member's settings.
func (s *store) commandFor(m *Member) string {
	command := os.Getenv("STORE_START")
	var cert, key, ca string
	if m.ClientTLSInfo != nil && !m.ClientTLSInfo.Empty() {
		command = os.Getenv("STORE_START_TLS")
		cert, key, ca = m.ClientTLSInfo.CertFile, m.ClientTLSInfo.KeyFile, m.ClientTLSInfo.TrustedCAFile
	}
	progress := m.WatchProgressNotifyInterval
	if progress == 0 {
		// Tests change this variable of the server before they start a cluster.
		progress = v3rpc.GetProgressReportInterval()
	}
	quota := m.QuotaBackendBytes
	if quota <= 0 {
		quota = 2 << 30
	}
	return strings.NewReplacer(
		"{DIR}", "'"+s.dir+"'", "{PROGRESS}", fmt.Sprintf("%dms", progress.Milliseconds()),
		"{OPS}", strconv.Itoa(int(m.MaxTxnOps)), "{BYTES}", strconv.Itoa(int(m.MaxRequestBytes)),
		"{QUOTA}", strconv.FormatInt(quota, 10), "{CERT}", cert, "{KEY}", key, "{CA}", ca,
	).Replace(command)
}

// ready waits until the store takes connections.
func (s *store) ready() error {
	ended := make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		cmd.Wait()
		close(ended)
	}(s.cmd)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-ended:
			return errors.New("the store ended before it took connections")
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("the store takes no connections")
}

func (s *store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users == 0 {
		s.stop()
	}
}

// stop is etcd's own HardStop: nothing is flushed that was not answered.
func (s *store) stop() {
	if s.cmd != nil {
		s.cmd.Process.Signal(syscall.SIGKILL)
		<-s.ended
		s.cmd = nil
	}
}
