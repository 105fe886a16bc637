// Command consistent-list asks a real kube-apiserver for the newest list of a quiet resource, over
// and over on one connection, and prints one JSON line: p50 and p99 in ms, how many lists the
// apiserver's cache answered and how many fell back to the store, and the store's CPU.
//
// Each list must hold every object that was made first: a wrong answer is an error, however fast.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

var (
	server  = flag.String("server", "", "https URL of the kube-apiserver")
	token   = flag.String("token", "", "of a user in system:masters")
	objects = flag.Int("objects", 20, "ConfigMaps that each list holds")
	seconds = flag.Float64("seconds", 8, "length of the measured part")
	every   = flag.Duration("every", 0, "from the start of a list to that of the next; 0: back to back")
	pid     = flag.Int("pid", 0, "the store's process: adds its CPU to the line")
	label   = flag.String("label", "", "copied into the line")
	kind    = flag.String("case", "consistent list", "copied into the line")
)

const path = "/api/v1/namespaces/default/configmaps"

// The server's certificate is its own: this machine measures itself.
var client = &http.Client{Transport: &http.Transport{
	ForceAttemptHTTP2: true,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
}}

func fatal(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "consistent-list: "+format+"\n", args...)
	os.Exit(1)
}

func call(method, path string, body []byte) (int, []byte, error) {
	request, err := http.NewRequest(method, *server+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+*token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	return answer.StatusCode, read, err
}

// reads are the consistent lists that the cache answered, and those that fell back to the store.
func reads() (cached, fallback float64) {
	_, page, err := call(http.MethodGet, "/metrics", nil)
	if err != nil {
		fatal("metrics: %v", err)
	}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "apiserver_watch_cache_consistent_read_total{") || !strings.Contains(line, `resource="configmaps"`) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		if err != nil {
			fatal("metrics: %s", line)
		}
		if strings.Contains(line, `fallback="true"`) {
			fallback += value
		} else {
			cached += value
		}
	}
	return cached, fallback
}

// cpu is the process' time on a processor so far, in microseconds.
func cpu() float64 {
	if *pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", *pid))
	if err != nil {
		fatal("%v", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	// The kernel counts in hundredths of a second here.
	return (user + system) * 1e4
}

func main() {
	flag.Parse()
	for n := range *objects {
		body := fmt.Appendf(nil, `{"metadata":{"name":"listed-%02d"},"data":{"a":%q}}`, n, strings.Repeat("x", 200))
		if status, said, err := call(http.MethodPost, path, body); err != nil || status != 201 && status != 409 {
			fatal("cannot make an object: %d %s %v", status, said, err)
		}
	}
	cachedBefore, fallbackBefore := reads()
	cpuBefore, began := cpu(), time.Now()
	var times []float64
	errors := 0
	for time.Since(began).Seconds() < *seconds {
		started := time.Now()
		status, body, err := call(http.MethodGet, path, nil)
		took := time.Since(started)
		var list struct{ Items []json.RawMessage }
		if err != nil || status != 200 || json.Unmarshal(body, &list) != nil || len(list.Items) < *objects {
			errors++
		} else {
			times = append(times, took.Seconds()*1e3)
		}
		if rest := *every - took; rest > 0 {
			time.Sleep(rest)
		}
	}
	elapsed := time.Since(began).Seconds()
	if len(times) == 0 {
		fatal("no list was answered, %d errors", errors)
	}
	used := cpu() - cpuBefore
	cached, fallback := reads()
	sort.Float64s(times)
	at := func(q float64) float64 { return times[min(int(q*float64(len(times))), len(times)-1)] }
	line := map[string]any{
		"label": *label, "case": *kind, "rate": float64(len(times)) / elapsed,
		"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": times[len(times)-1], "lists": len(times), "errors": errors,
		"from_cache": cached - cachedBefore, "fallbacks": fallback - fallbackBefore,
		// Of everything the store did in that time, the unrelated writes too: not of one list.
		"store_cores": used / 1e6 / elapsed,
	}
	out, err := json.Marshal(line)
	if err != nil {
		fatal("%v", err)
	}
	fmt.Println(string(out))
}
