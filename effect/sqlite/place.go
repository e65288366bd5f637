package sqlite

import (
	"os"
	"path/filepath"
)

// place is where a file was when it was opened. What is written to one that is
// not there any more is gone once it is closed, and whoever opens the path
// meanwhile has another one.
type place struct {
	path string
	info os.FileInfo // nil where it is not looked for
}

func placeOf(path string) (*place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	return &place{path, info}, err
}

// isThere reports whether the file is still the one in its place.
func (p *place) isThere() bool {
	if p.info == nil {
		return true
	}
	info, err := os.Stat(p.path)
	return err == nil && os.SameFile(info, p.info)
}
