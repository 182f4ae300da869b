//! Which addresses a plugin may reach: those of the public internet, and nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Is it an address of the public internet?
///
/// By IANA's special-purpose registries: whatever is listed there as not globally reachable is not, and an IPv6
/// address that stands for an IPv4 one is judged as that.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        // Shared between carriers and their customers.
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments, the former 6to4 relays, benchmarks.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let last_v4 = || {
        let [.., a, b, c, d] = address.octets();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // IPv4-mapped, IPv4-compatible (loopback and unspecified among them), IPv4-translated, NAT64 in both its forms.
        [0, 0, 0, 0, 0, 0xffff, ..] => is_public_v4(last_v4()),
        [0, 0, 0, 0, 0, 0, ..] => false,
        [0, 0, 0, 0, 0xffff, 0, ..] => is_public_v4(last_v4()),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(last_v4()),
        [0x64, 0xff9b, 1, ..] => false,
        // 6to4 carries an IPv4 address in its second and third part; Teredo hides one.
        [0x2002, high, low, ..] => {
            is_public_v4(Ipv4Addr::new((high >> 8) as u8, high as u8, (low >> 8) as u8, low as u8))
        }
        [0x2001, second, ..] if second < 0x200 => false,
        // Documentation.
        [0x2001, 0x0db8, ..] => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Of the rest only global unicast is routed.
        [first, ..] => (first & 0xe000) == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for good in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::",
            "3fff::1",
            "::ffff:0:127.0.0.1",
            "4000::1",
        ] {
            assert!(!is_public(bad.parse().unwrap()), "{bad}");
        }
    }
}
