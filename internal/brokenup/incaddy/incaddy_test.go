package incaddy

import (
	"io"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
)

func TestRun(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.Reply{Body: "hello"}))
	s := Run(t, Config{Site: "reverse_proxy " + up.Addr()})
	res, err := Client(t, false).Get(s.URL + "/a?n=1")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" {
		t.Errorf("got %q %v", body, err)
	}
	e := s.Log.Access(t, "/a?n=1")
	if e.Status != 200 || e.Size != len("hello") || e.MCP != nil {
		t.Errorf("logged %+v", e)
	}
}

func TestRefused(t *testing.T) {
	if err := Refused(t, Config{Site: "no_such_directive"}); !strings.Contains(err.Error(), "no_such_directive") {
		t.Error(err)
	}
}
