package mcpheaders

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// defaultPorts are the ports that a serialized origin leaves out.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// ParseOrigin returns the serialized form of an origin (RFC 6454, section 6.2):
// scheme://host[:port] in lower case, without the scheme's default port, so
// that two spellings of one origin are equal as text. It accepts what a browser
// sends and nothing else; the error names what is wrong. "null" is no origin: any
// page can make its browser send it.
func ParseOrigin(s string) (string, error) {
	if s == "null" {
		return "", errors.New("null is the origin of any sandboxed page and cannot be told apart")
	}
	scheme, authority, ok := strings.Cut(s, "://")
	if !ok {
		return "", errors.New("no scheme: an origin is scheme://host[:port]")
	}
	scheme = lower(scheme)
	if !isScheme(scheme) {
		return "", errors.New("the scheme is not one: an origin is scheme://host[:port]")
	}
	host, port, err := splitHostPort(authority)
	if err != nil {
		return "", err
	}
	if port == "" || port == defaultPorts[scheme] {
		return scheme + "://" + host, nil
	}
	return scheme + "://" + host + ":" + port, nil
}

// splitHostPort takes the part after :// apart. The port is empty when there is
// none.
func splitHostPort(authority string) (host, port string, err error) {
	if i := strings.IndexAny(authority, "/?#@"); i >= 0 {
		return "", "", errors.New("an origin ends with its host and port: no path, not even a slash, no query and no user")
	}
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		addr, err := netip.ParseAddr(authority[1:max(end, 1)])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", "", errors.New("the host in brackets is not an IPv6 address")
		}
		host, port = "["+addr.String()+"]", authority[end+1:]
	} else {
		end := strings.IndexByte(authority+":", ':')
		host, port = lower(authority[:end]), authority[end:]
		if !isHost(host) {
			return "", "", errors.New("the host is not a host name in ASCII (an international one is written xn--)")
		}
	}
	if port == "" {
		return host, "", nil
	}
	number, colon := strings.CutPrefix(port, ":")
	if n, err := strconv.ParseUint(number, 10, 16); !colon || err != nil || strconv.FormatUint(n, 10) != number {
		return "", "", errors.New("the port is not a number from 0 to 65535")
	}
	return host, number, nil
}

// isScheme and isHost take lower-case text.
func isScheme(s string) bool {
	return s != "" && 'a' <= s[0] && s[0] <= 'z' && strings.Trim(s, lowerAlphanumeric+"+-.") == ""
}

func isHost(s string) bool { return s != "" && strings.Trim(s, lowerAlphanumeric+"-._") == "" }

const lowerAlphanumeric = "abcdefghijklmnopqrstuvwxyz0123456789"

// lower maps A to Z only. Unicode's mappings would turn the Kelvin sign into k,
// and a host that nobody wrote into one that is allowed.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
