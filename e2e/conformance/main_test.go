package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddymcp/gateway/internal/e2etest"
)

// clientBehindGateway is the environment variable that makes this test binary an MCP client: the client that it
// names, with a gateway between it and the endpoint in the only argument.
const clientBehindGateway = "CONFORMANCE_CLIENT_BEHIND_GATEWAY"

// gatewayOptions is the environment variable with the options of that gateway.
const gatewayOptions = "CONFORMANCE_GATEWAY_OPTIONS"

func TestMain(m *testing.M) {
	client := os.Getenv(clientBehindGateway)
	if client == "" {
		os.Exit(m.Run())
	}
	if err := runBehindGateway(client, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runBehindGateway(client, endpoint string) error {
	// The servers of these scenarios name themselves in their metadata: no gateway can stand before them unnoticed,
	// and the results are not read.
	if strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/") {
		return errors.New("authorization is not tested behind the gateway")
	}
	storage, err := os.MkdirTemp("", "conformance-gateway")
	if err != nil {
		return err
	}
	defer os.RemoveAll(storage)
	urls, err := e2etest.StartGateway(storage, os.Getenv(gatewayOptions), endpoint)
	if err != nil {
		return err
	}
	defer caddy.Stop()

	cmd := exec.Command(client, urls[0])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
