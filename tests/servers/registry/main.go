// A schema registry in memory, for tests: registry ADDRESS [USER:PASSWORD].
package main

import (
	"encoding/base64"
	"log"
	"net/http"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	var options []srfake.Option
	if len(os.Args) > 2 {
		login := base64.StdEncoding.EncodeToString([]byte(os.Args[2]))
		options = append(options, srfake.WithAuth("Basic "+login))
	}
	server := &http.Server{Addr: os.Args[1], Handler: srfake.NewRegistry(options...).Handler()}
	log.Fatal(server.ListenAndServe())
}
