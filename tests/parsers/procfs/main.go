// Reads FOLDER/mdstat as node_exporter does, and prints what it understood as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

func main() {
	fs, err := procfs.NewFS(os.Args[1])
	if err == nil {
		var stats []procfs.MDStat
		if stats, err = fs.MDStat(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(stats)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
