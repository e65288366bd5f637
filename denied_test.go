package gateway

import "testing"

func TestDenies(t *testing.T) {
	for _, tt := range []struct {
		name            string
		deny, allowOnly []string
		denied, allowed []string
	}{
		{"nothing", nil, nil, nil, []string{"a", ""}},
		{"names", []string{"a", "b"}, nil, []string{"a", "b"}, []string{"ab", "A", "c", ""}},
		{"a prefix", []string{"delete_*"}, nil, []string{"delete_", "delete_user"}, []string{"delete", "Delete_user", "xdelete_"}},
		{"all", []string{"*"}, nil, []string{"a", ""}, nil},
		{"all but names", nil, []string{"a", "b"}, []string{"ab", "A", "c", ""}, []string{"a", "b"}},
		{"all but a prefix", nil, []string{"get_*"}, []string{"get", "Get_a"}, []string{"get_", "get_a"}},
		{"both", []string{"get_secret", "b"}, []string{"get_*", "b"}, []string{"get_secret", "b", "c"}, []string{"get_secrets", "get_a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &Handler{Deny: tt.deny, AllowOnly: tt.allowOnly}
			for _, name := range tt.denied {
				if !h.denies(name) || !h.restricts() {
					t.Errorf("%q is allowed", name)
				}
			}
			for _, name := range tt.allowed {
				if h.denies(name) {
					t.Errorf("%q is denied", name)
				}
			}
		})
	}
}

// With enforce off a name is denied that some server takes for a denied one.
func TestMayDeny(t *testing.T) {
	h := &Handler{Deny: []string{"delete_user", "drop_*"}, AllowOnly: []string{"get_*", "delete_*", "exact"}, Tools: []Tool{{Pattern: "get_user"}}}
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"delete_user":              true,
		"Delete_User":              true,
		"delete_uſer":              true,
		"delete_user\x00":          true,
		"DELETE_USER\x00a":         true,
		"drop_table":               true,
		"a":                        true,
		"a\x00":                    true,
		"\x00get_a":                true,
		"exact\x00ly":              true,
		"exact":                    false,
		"get_a":                    false,
		"get_USER":                 false,
		"delete_users":             false,
		"get_a\x00":                false,
		"delete_users\x00, really": false,
	} {
		if got := h.mayDeny(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}

	h = &Handler{Deny: []string{"delete_user"}}
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	if !h.mayDeny("DELETE_USER\x00a") {
		t.Error("what a NUL ends is not looked at")
	}
}
