package effect

import (
	"encoding/hex"
	"fmt"
	"slices"
)

// States, events and answers are written by their names, in stores, receipts
// and answers: their numbers are not for keeping.

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is not the name of a state", text)
	}
	*s = State(i)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (e Event) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Event) UnmarshalText(text []byte) error {
	i := slices.Index(eventNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is not the name of an event", text)
	}
	*e = Event(i)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Answer) UnmarshalText(text []byte) error {
	for i := range answers {
		if answers[i].name == string(text) {
			*a = Answer(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not the name of an answer", text)
}

// String returns the fingerprint in hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// MarshalText implements encoding.TextMarshaler.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
