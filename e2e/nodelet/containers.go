package main

import (
	"context"
	"errors"
	"io"
	"net"
	osexec "os/exec"
	"strconv"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Containers that are processes of this machine.
type containers struct{}

// What a container does, for those who attach to it: it says each line again, and ends at "bye".
var entrypoint = []string{"sh", "-c", `while read -r line; do echo "heard $line"; [ "$line" = bye ] && exit 0; done; echo end`}

func (containers) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(command) == 0 {
		return errors.New("no command")
	}
	if tty {
		return inTerminal(ctx, command, in, out, resize)
	}
	cmd := osexec.CommandContext(ctx, command[0], command[1:]...)
	if out != nil {
		cmd.Stdout = out
	}
	if err != nil {
		cmd.Stderr = err
	}
	if in == nil {
		return exited(cmd.Run())
	}
	// Not by cmd.Stdin, whose copier is waited for after the command has ended.
	stdin, failed := cmd.StdinPipe()
	if failed != nil {
		return failed
	}
	if failed := cmd.Start(); failed != nil {
		return failed
	}
	go func() {
		_, _ = io.Copy(stdin, in)
		_ = stdin.Close()
	}()
	return exited(cmd.Wait())
}

func (c containers) AttachContainer(ctx context.Context, name, uid, container string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return c.ExecInContainer(ctx, name, uid, container, entrypoint, in, out, err, tty, resize, 0)
}

// Runs a command in a terminal whose size follows the client's.
func inTerminal(ctx context.Context, command []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	cmd := osexec.CommandContext(ctx, command[0], command[1:]...)
	terminal, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	defer terminal.Close()
	go func() {
		for size := range resize {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	// Ends with an error when the command closes the terminal; what was read before counts.
	_, _ = io.Copy(out, terminal)
	return exited(cmd.Wait())
}

// An exit code, as the streaming code wants to have it.
func exited(err error) error {
	var exit *osexec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (containers) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(stream, connection)
	return nil
}
