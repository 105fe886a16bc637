// A kubelet's streaming half, for tests of tunnels: exec, attach, port-forward and logs of "containers"
// that are processes of this machine. The SPDY and WebSocket code is Kubernetes' own, the library
// that container runtimes serve kubelets' streams with. It knows no pods and asks no apiserver:
// whatever pod is named, the command runs.
//
// kwok serves the same paths, and two things make it no stand-in here (0.8.0): it wraps the error of a
// command, so that no exit code reaches the client, and it never closes a command's input.
//
// usage: nodelet ADDRESS CERT KEY LOGS
package main

import (
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	// As a kubelet's: an idle stream is kept for hours.
	idleMax = 4 * time.Hour
	// For the streams of a connection to come.
	creationMax = 30 * time.Second
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: nodelet ADDRESS CERT KEY LOGS")
	}
	address, cert, key, logs := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", attach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", forward)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		follow(w, r, logs)
	})
	log.Fatal(http.ListenAndServeTLS(address, cert, key, mux))
}

func exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, containers{}, r.PathValue("pod"), "", r.PathValue("container"),
		r.URL.Query()["command"], options, idleMax, creationMax, remotecommand.SupportedStreamingProtocols)
}

func attach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, containers{}, r.PathValue("pod"), "", r.PathValue("container"),
		options, idleMax, creationMax, remotecommand.SupportedStreamingProtocols)
}

func forward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, containers{}, r.PathValue("pod"), "",
		options, idleMax, creationMax, portforward.SupportedProtocols)
}

// The lines of the file called after the pod, and with follow=true each further one as it comes.
func follow(w http.ResponseWriter, r *http.Request, logs string) {
	pod := r.PathValue("pod")
	if strings.ContainsAny(pod, "/\\") {
		http.Error(w, "no such pod", http.StatusNotFound)
		return
	}
	file, err := os.Open(logs + "/" + pod + ".log")
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer file.Close()
	w.WriteHeader(http.StatusOK)
	controller := http.NewResponseController(w)
	buffer := make([]byte, 32*1024)
	for {
		n, _ := file.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			if err := controller.Flush(); err != nil {
				return
			}
			continue
		}
		if r.URL.Query().Get("follow") != "true" {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
