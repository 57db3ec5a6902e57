module parsers/procfs

go 1.25.0

require github.com/prometheus/procfs v0.21.1

require golang.org/x/sys v0.46.0 // indirect
