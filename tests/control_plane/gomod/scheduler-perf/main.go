// The benchmark of kube-scheduler that upstream measures itself with, as a program: it runs the cases of the file that
// its first argument names, and takes the flags of `go test` (with the prefix "test.") and of scheduler_perf.
//
// Upstream has it as the tests of its packages test/integration/scheduler_perf/*, each with the cases beside it; its
// README names this use with cases of one's own.
package main

import (
	"fmt"
	"os"
	"testing"

	_ "k8s.io/component-base/logs/json/register"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: scheduler-perf CASES.yaml [flags]")
		os.Exit(2)
	}
	cases := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	testing.Init()
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	benchmark := func(b *testing.B) { perf.RunBenchmarkPerfScheduling(b, cases, "fairgate", nil) }
	testing.Main(
		func(pattern, name string) (bool, error) { return true, nil },
		nil, []testing.InternalBenchmark{{Name: "BenchmarkPerfScheduling", F: benchmark}}, nil)
}
