package profile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// signedText is what a signature says of a manifest's bytes. Its first line tells it from
// whatever else a key may have signed.
func signedText(manifest []byte) (string, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, manifest); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return "pinfold manifest v1\nsha256:" + hex.EncodeToString(sum[:]) + "\n", nil
}

// Seal makes JSON of a manifest; sign, unless it is nil, signs a text.
func Seal(m sandbox.Manifest, sign func(text string) (string, error)) (sandbox.SignedManifest, error) {
	s := sandbox.SignedManifest{Manifest: encoded(m)}
	if sign == nil {
		return s, nil
	}
	text, err := signedText(s.Manifest)
	if err == nil {
		s.Signature, err = sign(text)
	}
	return s, err
}

// Verify checks a signed manifest. open checks a signature and says what it is of.
func Verify(data []byte, open func(signature string) (text string, err error)) (sandbox.Manifest, error) {
	var s sandbox.SignedManifest
	if err := strictjson.Decode(data, &s); err != nil {
		return sandbox.Manifest{}, unproved("is no manifest", err)
	}
	if s.Signature == "" {
		return sandbox.Manifest{}, unproved("is not signed", nil)
	}
	signed, err := open(s.Signature)
	if err != nil {
		return sandbox.Manifest{}, unproved("is not signed by this key", err)
	}
	text, err := signedText(s.Manifest)
	if err != nil || text != signed {
		return sandbox.Manifest{}, unproved("is not the one that was signed", err)
	}
	var m sandbox.Manifest
	if err := strictjson.Decode(s.Manifest, &m); err != nil {
		return m, unproved("is no manifest", err)
	}
	if m.V != 1 || len(m.Profiles) != len(m.Tools) {
		return m, unproved("is of a kind that this program does not know", nil)
	}
	if m.Form != sandbox.FormPinfold {
		return m, nil
	}
	for i, raw := range m.Tools {
		if err := checkTool(raw, m.Profiles[i]); err != nil {
			return m, err
		}
	}
	return m, nil
}

// checkTool checks that the digest of a tool in Pinfold's form is that of its profile.
func checkTool(raw json.RawMessage, ref sandbox.ProfileRef) error {
	var t sandbox.Tool
	if err := strictjson.Decode(raw, &t); err != nil {
		return unproved("has a tool that cannot be read", err)
	}
	digest, err := Digest(t.Profile)
	if err != nil || digest != t.Digest || ref != (sandbox.ProfileRef{Name: t.Profile.Name, Digest: digest}) {
		return unproved(fmt.Sprintf("has another digest for %s than its profile's", sandbox.SafeText(ref.Name, 80)), err)
	}
	return nil
}

func unproved(why string, err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeManifestInvalid, Message: "the manifest " + why, Err: err,
		Hint: "fetch it again: pinfold manifest >FILE; its key is manifest/key.pub in the server's state directory",
	}
}
