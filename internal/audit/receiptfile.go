package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// ParseReceipt reads a receipt, also one with its entry, or the result of a run or a process
// that has one. Then check compares what is beside the receipt with the entry that it proves;
// otherwise it is nil. What a file says it says once, in the letters that others read it by,
// and beside a receipt by itself stands nothing: else it could say to them what nobody compared.
func ParseReceipt(text []byte) (r sandbox.Receipt, check func(sandbox.AuditEntry) error, err error) {
	var has map[string]json.RawMessage
	if err = json.Unmarshal(text, &has); err == nil {
		err = saidOnce(json.NewDecoder(bytes.NewReader(text)), fields)
	}
	if err != nil {
		return r, nil, badReceipt(err)
	}
	_, entry := has["entry"]
	_, receipt := has["receipt"]
	_, checkpoint := has["checkpoint"]
	var id string
	_ = json.Unmarshal(has["id"], &id)
	switch {
	case checkpoint:
		err = strictjson.Decode(text, &r)
		return r, nil, badReceipt(err)
	case entry && receipt && len(has) == 2: // as "audit show --json" and GET /v1/audit/N have it
		var said sandbox.AuditRecord
		if err = json.Unmarshal(text, &said); err == nil && said.Receipt != nil {
			return *said.Receipt, func(e sandbox.AuditEntry) error { return sameEntry(said.Entry, e) }, nil
		}
	case entry:
		err = errors.New("beside an entry and its receipt stands something else, which nobody compares (audit show --texts); take it out")
	case receipt && strings.HasPrefix(id, "prc_"):
		var p sandbox.Process
		if err = json.Unmarshal(text, &p); err == nil && p.Receipt != nil {
			return *p.Receipt, func(e sandbox.AuditEntry) error { return CheckProcess(&p, e) }, nil
		}
	case receipt:
		var result sandbox.Result
		if err = json.Unmarshal(text, &result); err == nil && result.Receipt != nil {
			return *result.Receipt, func(e sandbox.AuditEntry) error { return CheckResult(&result, e) }, nil
		}
	}
	if err == nil {
		err = errors.New("it has neither a checkpoint nor a receipt")
	}
	return r, nil, badReceipt(err)
}

// sameEntry says whether what stands beside a receipt is the entry that it proves.
func sameEntry(said, proved sandbox.AuditEntry) error {
	if !reflect.DeepEqual(said, proved) {
		return another("entry", "is not the one that the receipt proves")
	}
	return nil
}

// names says which names of an object have to differ, and how.
type names int

const (
	fields   names = iota // ours: encoding/json takes letters of both cases, and their like, for the same
	chosen                // others': they differ as they stand
	anything              // the text is compared, whatever it says
)

// saidOnce is an error where an object has a name twice, in the next value, which is JSON.
func saidOnce(d *json.Decoder, of names) error {
	token, err := d.Token()
	if err != nil || token != json.Delim('{') && token != json.Delim('[') {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		inside := of
		if token == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if of == fields {
				name = strings.ToLower(strings.ToUpper(name))
			}
			if seen[name] && of != anything {
				return fmt.Errorf("it says %s twice", sandbox.SafeText(name, 60))
			}
			seen[name] = true
			inside = below(of, name)
		}
		if err := saidOnce(d, inside); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// below is which names have to differ in a value of that name: metadata are the caller's, and
// the forms of a value in results are the program's, as is all that is in one.
func below(of names, name string) names {
	switch {
	case of != fields:
		return anything
	case name == "metadata" || name == "results":
		return chosen
	}
	return fields
}

func badReceipt(err error) error {
	if err == nil {
		return nil
	}
	why := strings.TrimPrefix(err.Error(), "json: ")
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		why = fmt.Sprintf("it is no JSON from byte %d on", syntax.Offset)
	}
	return &sandbox.Error{
		Code: sandbox.CodeReceiptInvalid, Message: "this is neither a receipt nor a result with one: " + why, Err: err,
		Hint: "pinfold run --receipt FILE writes one, and every result of a server with an audit log has one",
	}
}
