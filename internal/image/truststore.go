package image

import (
	"crypto/x509"
	"encoding/asn1"
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

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content []byte `asn1:"tag:0,explicit"`
}

type trustStore struct {
	Version int
	Safe    contentInfo
}

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

// javaTrust is a store of such entries.
func javaTrust(bags ...[]byte) []byte {
	entries := marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: slices.Concat(bags...)})
	return marshal(trustStore{Version: 3, Safe: contentInfo{
		Type: oidData, Content: marshal([]contentInfo{{Type: oidData, Content: entries}}),
	}})
}

// marshal encodes values of these types, all of which can be.
func marshal(value any) []byte {
	der, err := asn1.Marshal(value)
	if err != nil {
		panic("image: " + err.Error())
	}
	return der
}
