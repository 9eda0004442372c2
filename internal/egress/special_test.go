package egress

import (
	"net/netip"
	"testing"
)

// The forms in which addresses are hidden (NE-04): none of them is public.
func TestSpecialAddresses(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.0.1", "168.63.129.16",
		"169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.0.8", "192.0.2.1", "192.31.196.1", "192.52.193.1",
		"192.88.99.1", "192.168.1.1", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:93.184.216.34", "::127.0.0.1", "::93.184.216.34", "64:ff9b::7f00:1", "64:ff9b::5db8:d822", "64:ff9b:1::1", "100::1", "100:0:0:1::1",
		"2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:5db8:d822::", "2620:4f:8000::1", "3fff::1", "4000::1", "5f00::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "febf::1", "fec0::1", "ff02::1", "fe80::1%eth0", "2606:4700::1%1",
	} {
		if err := Public(netip.MustParseAddr(a)); err == nil {
			t.Errorf("%s is public", a)
		}
	}
	for _, a := range []string{
		"1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.1", "168.63.129.15", "172.15.0.1", "172.32.0.1", "192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255",
		"2606:4700:4700::1111", "2a00:1450:4001:830::200e", "2001:200::1", "2001:4860:4860::8888", "2003::1",
	} {
		if err := Public(netip.MustParseAddr(a)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if Public(netip.Addr{}) == nil {
		t.Error("no address is public")
	}
}

func TestOwnAddresses(t *testing.T) {
	h := NewHost(1)
	if ours, err := h.own.has(netip.MustParseAddr("127.0.0.1")); err != nil || !ours {
		t.Errorf("127.0.0.1 is ours: %v %v", ours, err)
	}
	if ours, err := h.own.has(netip.MustParseAddr("192.0.2.200")); err != nil || ours {
		t.Errorf("192.0.2.200 is ours: %v %v", ours, err)
	}
	h.own.all[netip.MustParseAddr("8.8.8.8")] = true
	if err := h.check(netip.MustParseAddr("8.8.8.8")); err == nil {
		t.Error("a public address of this machine's may be dialled")
	}
	if err := h.check(netip.MustParseAddr("8.8.4.4")); err != nil {
		t.Error(err)
	}
}
