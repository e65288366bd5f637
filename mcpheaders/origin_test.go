package mcpheaders

import (
	"strings"
	"testing"
)

func TestParseOrigin(t *testing.T) {
	var file struct {
		About   string `json:"about"`
		Origins []struct {
			Origin     string `json:"origin"`
			Serialized string `json:"serialized"`
			Error      string `json:"error"`
		} `json:"origins"`
	}
	load(t, "origins.json", &file)
	for _, test := range file.Origins {
		t.Run(test.Origin, func(t *testing.T) {
			got, err := ParseOrigin(test.Origin)
			if test.Error != "" {
				if err == nil || !strings.Contains(err.Error(), test.Error) {
					t.Fatalf("got %q, error %v, want an error with %q", got, err, test.Error)
				}
				return
			}
			if err != nil || got != test.Serialized {
				t.Fatalf("got %q, error %v, want %q", got, err, test.Serialized)
			}
			if again, err := ParseOrigin(got); err != nil || again != got {
				t.Errorf("the serialized form becomes %q, error %v", again, err)
			}
		})
	}
}
