package sandbox

import "encoding/json"

// Rich is one value that a program left, in several forms: media type → value.
// Text is a string, an image is a string in base64, and JSON is a string where
// it is one and otherwise a json.RawMessage.
//
// All of it is the guest's word. HTML and SVG may hold scripts: show them only
// where a script can do no harm, as in a frame with the attribute "sandbox".
type Rich map[string]any

// Media types of Pinfold's own.
const (
	// MediaFrame is a data frame: {"columns", "index", "data", "rows",
	// "truncated"}. data is a list of rows; rows counts those of the whole
	// frame; truncated says that not all rows or columns are there.
	MediaFrame = "application/vnd.pinfold.dataframe+json"
	// MediaError is the exception that ended a program: {"name", "message",
	// "traceback": [{"file", "line", "name", "text"}], "omitted"}. omitted
	// counts frames that were left out in the middle.
	MediaError = "application/vnd.pinfold.error+json"
)

// UnmarshalJSON reads an object and keeps the text of what is no string, so that
// numbers stay exact.
func (r *Rich) UnmarshalJSON(b []byte) error {
	var forms map[string]json.RawMessage
	if err := json.Unmarshal(b, &forms); err != nil {
		return err
	}
	*r = make(Rich, len(forms))
	for media, form := range forms {
		var s string
		if len(form) > 0 && form[0] == '"' && json.Unmarshal(form, &s) == nil {
			(*r)[media] = s
			continue
		}
		(*r)[media] = form
	}
	return nil
}

// SkippedResult says why something that a program left is not among the results.
type SkippedResult struct {
	Code   string `json:"code"` // an Error code
	Reason string `json:"reason"`
}
