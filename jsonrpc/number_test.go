package jsonrpc

import (
	"strings"
	"testing"
)

func TestCanonicalInteger(t *testing.T) {
	for token, want := range map[string]bool{
		"0": true, "7": true, "-7": true, "10": true, "2000": true,
		"9007199254740991": true, "-9007199254740991": true,
		"9007199254740992": false, "-9007199254740992": false, "9007199254740993": false,
		"18446744073709551616": false, "99999999999999999999999999": false,
		"-0": false, "2000.0": false, "2e3": false, "2E3": false, "0.1": false, "-1.5": false, "1e400": false,
		// No JSON tokens, but header values that other parsers take for numbers.
		"": false, "-": false, "+2000": false, "02000": false, "-02": false, "00": false, "2_000": false, " 2000": false, "2000 ": false,
		"0x10": false, "２０００": false, "٢٠٠٠": false, "Infinity": false,
	} {
		if got := CanonicalInteger([]byte(token)); got != want {
			t.Errorf("CanonicalInteger(%q) is %v", token, got)
		}
	}
}

func TestEqualNumbers(t *testing.T) {
	zeros := strings.Repeat("0", 1_000_000)
	huge := "1" + strings.Repeat("0", 30)
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"2000", "2000", true},
		{"2000", "2e3", true},
		{"2000", "2E+3", true},
		{"2000", "2000.0", true},
		{"2000", "20000e-1", true},
		{"2000", "0.2e4", true},
		{"2000", "0.00002e8", true},
		{"2000", "2001", false},
		{"2000", "200", false},
		{"2000", "20000", false},
		{"2000", "-2000", false},
		{"2000", "2000.1", false},
		{"-5", "-5.0", true},
		{"0", "-0", true},
		{"0", "0e99999999999999999999", true},
		{"0", "0.000", true},
		{"0", "1e-99999999999999999999", false},
		{"1.5", "15e-1", true},
		{"1.5", "1.50", true},
		{"1.05", "1.5", false},
		{"10.01", "1001e-2", true},
		{"100", "1e2", true},
		{"0.001", "1e-3", true},
		{"0.001", "1e-2", false},
		{"9007199254740993", "9007199254740992", false},
		{"9007199254740991.4", "9007199254740991", false},
		{"1.0000000000000000001", "1", false},
		{"1e1000000", "1e1000000", true},
		{"1e1000000", "1e1000001", false},
		{"1e1000000", "1" + zeros, true},
		{"1e1000001", "1" + zeros, false},
		{"1e-1000001", "0." + zeros + "1", true},
		{"1e" + huge, "10e" + "999999999999999999999999999999", true},
		{"1e" + huge, "1e" + "999999999999999999999999999999", false},
		{"1e-" + huge, "0.1e-" + "999999999999999999999999999999", true},
		{"1e" + huge, "1e-" + huge, false},
		{"1e+" + huge, "1e0000" + huge, true},
		{"1e5", "1e" + huge, false},
		{"1e05", "1e5", true},
		{"1e5", "1e-5", false},
		{"100e-1", "1e1", true},
		{"1e9223372036854775807", "10e9223372036854775806", true},
		{"1e18446744073709551616", "1", false}, // 2^64 is not 0
	} {
		if got := EqualNumbers([]byte(row.a), []byte(row.b)); got != row.want {
			t.Errorf("EqualNumbers(%.40s, %.40s) is %v", row.a, row.b, got)
		}
		if got := EqualNumbers([]byte(row.b), []byte(row.a)); got != row.want {
			t.Errorf("EqualNumbers(%.40s, %.40s) is %v", row.b, row.a, got)
		}
	}
}
