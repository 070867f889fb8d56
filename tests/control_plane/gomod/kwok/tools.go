//go:build tools

// Package tools names the command to build, so that `go mod tidy` keeps what it needs.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
