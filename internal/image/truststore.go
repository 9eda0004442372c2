package image

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"slices"
)

// A store of whom Java trusts, in the form of its own cacerts: PKCS #12 (RFC 7292) without a
// password, in which each certificate has the attribute by which Java knows that it is to be
// trusted (oracle.security.pkcs12.trustedKeyUsage).

var (
	oidData             = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertificateBag   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509Certificate  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	oidTrustedKeyUsage  = asn1.ObjectIdentifier{2, 16, 840, 1, 113894, 746875, 1, 1}
	oidAnyExtendedUsage = asn1.ObjectIdentifier{2, 5, 29, 37, 0}
)

type certificateBag struct {
	Type    asn1.ObjectIdentifier
	Content []byte `asn1:"tag:0,explicit"`
}

type bagAttribute struct {
	Type   asn1.ObjectIdentifier
	Values []asn1.ObjectIdentifier `asn1:"set"`
}

type safeBag struct {
	Type       asn1.ObjectIdentifier
	Content    certificateBag `asn1:"tag:0,explicit"`
	Attributes []bagAttribute `asn1:"set"`
}

// trustBags are the entries of a store for the certificates in PEM, one behind the other.
// What cannot be read is left out: Java would take nothing of a store that has it.
func trustBags(certificates []byte) (bags []byte) {
	for block, rest := pem.Decode(certificates); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		bags = append(bags, marshal(safeBag{
			Type: oidCertificateBag, Content: certificateBag{Type: oidX509Certificate, Content: block.Bytes},
			Attributes: []bagAttribute{{Type: oidTrustedKeyUsage, Values: []asn1.ObjectIdentifier{oidAnyExtendedUsage}}},
		})...)
	}
	return bags
}

// javaTrust is a store of such entries. All that is around them comes before them, so that
// they are copied once.
func javaTrust(bags ...[]byte) []byte {
	size := 0
	for _, b := range bags {
		size += len(b)
	}
	const sequence, octets, content = 0x30, 0x04, 0xa0
	var head []byte
	begin := func(what ...byte) { head = append(what, head...) }
	within := func(tag byte) { begin(header(tag, len(head)+size)...) }
	contentInfo := func() {
		within(octets)
		within(content)
		begin(marshal(oidData)...)
		within(sequence)
	}
	within(sequence)
	contentInfo()
	within(sequence)
	contentInfo()
	begin(marshal(3)...) // the version
	within(sequence)
	return slices.Concat(append([][]byte{head}, bags...)...)
}

// header is what comes before a value of so many bytes, in DER.
func header(tag byte, size int) []byte {
	if size < 0x80 {
		return []byte{tag, byte(size)}
	}
	length := bytes.TrimLeft(binary.BigEndian.AppendUint32(nil, uint32(size)), "\x00") //nolint:gosec // maxTrust bounds it
	return append([]byte{tag, 0x80 | byte(len(length))}, length...)
}

// marshal encodes values of these types, all of which can be.
func marshal(value any) []byte {
	der, err := asn1.Marshal(value)
	if err != nil {
		panic("image: " + err.Error())
	}
	return der
}
