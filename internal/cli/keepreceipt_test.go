package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
)

// TestReceiptIsAskedForBeforeTheRun: a program once ran before anybody saw that no receipt
// could come of it.
func TestReceiptIsAskedForBeforeTheRun(t *testing.T) {
	for code, want := range map[string]string{
		sandbox.CodeNotFound: "--receipt: the server keeps no audit log, so the run would have no receipt",
		sandbox.CodeInternal: "", // the run may go well all the same
		"":                   "",
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if r.Method != http.MethodGet || r.URL.Path != "/v1/audit/checkpoint" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			if code == "" {
				_ = json.NewEncoder(w).Encode(sandbox.AuditCheckpoint{})
				return
			}
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(sandbox.ErrorBody{Error: &sandbox.Error{Code: code, Message: "no"}})
		}))
		defer server.Close()
		c, err := client.New(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := ""
		if err := receiptComes(t.Context(), "r.json", remoteRunner{c}); err != nil {
			got = sandbox.AsError(err).Message
		}
		if got != want || asked == 0 {
			t.Errorf("%q: %q, asked %d times", code, got, asked)
		}
		asked = 0
		if err := receiptComes(t.Context(), "", remoteRunner{c}); err != nil || asked > 0 {
			t.Errorf("without --receipt: %v, asked %d times", err, asked)
		}
	}
}
