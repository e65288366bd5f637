// Command quickstart shows in a minute what mcp_gateway does. It builds the example server and Caddy with the module,
// starts both on this machine, and sends calls through them: an honest one, one whose header lies, one whose answer is
// lost, and then both refunds a second time.
//
//	go run ./examples/quickstart
//
// It exits with status 0 only if everything went as it tells, and ends what it started. With -keep it waits first, so
// that you can send requests of your own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	keep := flag.Bool("keep", false, "keep everything running after the story, until Ctrl-C")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, *keep)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\n%s %v\n", red("✗"), err)
		stop()
		os.Exit(1)
	}
}

// run is apart from main so that its deferred calls, which end the child processes, come before os.Exit.
func run(ctx context.Context, keep bool) error {
	s, err := startStack(ctx)
	if err != nil {
		return err
	}
	defer s.stop()

	if err := tell(ctx, s); err != nil {
		return fmt.Errorf("%w\n\nCaddy's log:\n%s", err, s.caddy.log())
	}
	if keep {
		tellHowToPlay(s)
		<-ctx.Done()
		fmt.Println()
	}
	return nil
}
