// Stand-in for one file of the k8s.io/apiserver module: the file in which its
// storage tests start an etcd inside the test process. suite.sh puts this one in
// its place, in a copy of the module, so that the same tests talk to a server
// process started by a command. Only the two exported signatures are prescribed
// by the tests; everything below is ours.
//
// Read from the environment (set by suite.sh and by the runner):
//
//	STORE_START       command, with {DIR} {CPORT} {PPORT} and, optionally, {PROGRESS}
//	STORE_START_TLS   the same with {CERT} {KEY} {CA}; without it TLS tests skip
//	STORE_LOGS        folder for the servers' own output
//	STORE_USED        file that gets one line per server started
package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// NewTestConfig hands out the settings object that tests adjust before they
// call RunEtcd. Of it RunEtcd reads Dir, WatchProgressNotifyInterval and
// ClientTLSInfo; ports are chosen when the server starts.
func NewTestConfig(t testing.TB) *embed.Config {
	c := embed.NewConfig()
	c.Dir = t.TempDir()
	return c
}

// RunEtcd starts the external server for the length of test t and returns a
// client that is known to get answers from it.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	withTLS := !cfg.ClientTLSInfo.Empty()
	command, scheme, host := os.Getenv("STORE_START"), "http", "127.0.0.1"
	if withTLS {
		command, scheme, host = os.Getenv("STORE_START_TLS"), "https", "localhost"
		if command == "" {
			t.Skip("no TLS start command was given")
		}
	}
	if command == "" {
		t.Fatal("STORE_START is not set")
	}

	client, peer := freePort(t), freePort(t)
	command = strings.NewReplacer(
		"{DIR}", cfg.Dir,
		"{CPORT}", strconv.Itoa(client),
		"{PPORT}", strconv.Itoa(peer),
		"{PROGRESS}", cfg.WatchProgressNotifyInterval.String(),
		"{CERT}", cfg.ClientTLSInfo.CertFile,
		"{KEY}", cfg.ClientTLSInfo.KeyFile,
		"{CA}", cfg.ClientTLSInfo.TrustedCAFile,
	).Replace(command)
	srv := launch(t, command)

	tlsConfig, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatalf("client TLS settings: %v", err)
	}
	if !withTLS {
		tlsConfig = nil
	}
	c := srv.connect(t, clientv3.Config{
		Endpoints:   []string{fmt.Sprintf("%s://%s:%d", scheme, host, client)},
		TLS:         tlsConfig,
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	record(t, c)
	return c
}

// record wraps the client with the request counters that the tests read back.
// One constructor takes one argument in some releases and two in others.
func record(t testing.TB, c *kubernetes.Client) {
	kube := storagetesting.NewKubernetesRecorder(c.Kubernetes)
	ctor := reflect.ValueOf(storagetesting.NewKVRecorder)
	args := []reflect.Value{reflect.ValueOf(c.KV)}
	if ctor.Type().NumIn() == 2 {
		args = append(args, reflect.ValueOf(kube))
	}
	kv, ok := ctor.Call(args)[0].Interface().(clientv3.KV)
	if !ok {
		t.Fatal("the request counter is no longer a clientv3.KV: adapt this file")
	}
	c.KV, c.Kubernetes = kv, kube
}

type server struct {
	cmd      *exec.Cmd
	log      string
	gone     chan struct{} // closed once the process has been waited for
	stopping atomic.Bool
}

var launched atomic.Int64

func launch(t testing.TB, command string) *server {
	name := fmt.Sprintf("%d-%d", os.Getpid(), launched.Add(1))
	s := &server{log: filepath.Join(os.Getenv("STORE_LOGS"), name+".log"), gone: make(chan struct{})}
	out, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(out, "# %s: %s\n", t.Name(), command)

	// A group of its own, so that one signal reaches a wrapper and its children.
	s.cmd = exec.Command("sh", "-c", command)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start %q: %v", command, err)
	}
	out.Close()
	if f, err := os.OpenFile(os.Getenv("STORE_USED"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		fmt.Fprintln(f, t.Name())
		f.Close()
	}

	go func() {
		err := s.cmd.Wait()
		if !s.stopping.Load() {
			t.Errorf("the server process ended during the test (%v); its log: %s", err, s.log)
		}
		close(s.gone)
	}()
	t.Cleanup(func() {
		s.stopping.Store(true)
		group := -s.cmd.Process.Pid
		syscall.Kill(group, syscall.SIGTERM)
		select {
		case <-s.gone:
		case <-time.After(5 * time.Second):
		}
		syscall.Kill(group, syscall.SIGKILL)
		<-s.gone
		// The group is empty when it can no longer be signalled; only then
		// may the data folder be removed.
		for i := 0; i < 100 && syscall.Kill(group, 0) == nil; i++ {
			time.Sleep(20 * time.Millisecond)
		}
	})
	return s
}

// connect waits until a linearizable read is answered.
func (s *server) connect(t testing.TB, cc clientv3.Config) *kubernetes.Client {
	const limit = 60 * time.Second
	c, err := kubernetes.New(cc)
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	for end := time.Now().Add(limit); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.Client.Get(ctx, "\x00ready")
		cancel()
		if err == nil {
			break
		}
		select {
		case <-s.gone:
			c.Close()
			t.Fatalf("the server ended before it was ready; its log: %s", s.log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			c.Close()
			t.Fatalf("no answer from the server within %v (%v); its log: %s", limit, err, s.log)
		}
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// freePort is a port that nobody listened on a moment ago.
func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
