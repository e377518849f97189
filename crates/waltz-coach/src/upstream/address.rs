//! Which network addresses an upstream may have. A name is looked up and checked anew for every
//! connection, so that one that changes its address after the start cannot lead the gateway and its keys
//! to the metadata service of a cloud machine, which hands out credentials to whoever asks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;
use url::Url;

/// Looks a name up.
pub(super) type Lookup = Arc<dyn Fn(String) -> Found + Send + Sync>;

/// The addresses of a name, once they are known.
pub(super) type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Why a name may not be connected to.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` leads only to addresses that are not allowed")]
struct Refused(String);

/// Resolves names and leaves out metadata addresses, and where that is wanted those of private networks.
#[derive(Clone)]
pub(super) struct Guard {
    lookup: Lookup,
    refuses: fn(IpAddr) -> bool,
}

impl Guard {
    /// A guard over the system's own resolver.
    pub(super) fn system() -> Self {
        Self::new(Arc::new(|name| {
            Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
        }))
    }

    pub(super) fn new(lookup: Lookup) -> Self {
        Self { lookup, refuses: is_metadata }
    }

    /// The same without addresses of this machine and of private networks.
    pub(super) fn without_private(self) -> Self {
        Self { refuses: |address| is_metadata(address) || is_private(address), ..self }
    }

    /// The same with every address.
    pub(super) fn open(self) -> Self {
        Self { refuses: |_| false, ..self }
    }
}

/// Names are looked up here; addresses that stand in a URL itself never come this way.
impl Service<Name> for Guard {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let name = name.as_str().to_owned();
        let found = (self.lookup)(name.clone());
        let refuses = self.refuses;
        Box::pin(async move {
            let mut addresses = found.await?;
            addresses.retain(|address| !refuses(address.ip()));
            if addresses.is_empty() {
                tracing::warn!(host = %name, "a name that leads only to addresses that are not allowed is not connected to");
                return Err(io::Error::other(Refused(name)));
            }
            Ok(addresses.into_iter())
        })
    }
}

/// The metadata address that stands in a URL itself, in whatever spelling.
pub(super) fn metadata_literal(url: &Url) -> Option<IpAddr> {
    // The parser has turned decimal, octal and hexadecimal spellings into the usual one.
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    host.parse().ok().filter(|address| is_metadata(*address))
}

/// Whether cloud machines serve their metadata under an address: link-local ones, and the few that
/// providers chose elsewhere.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_metadata_v4(address),
        IpAddr::V6(address) => {
            let inside = ipv4_inside(address).is_some_and(is_metadata_v4);
            inside || address.is_unicast_link_local() || METADATA_V6.contains(&address)
        }
    }
}

/// The IPv4 address inside of an IPv6 one, which leads to the same place: mapped, compatible, by NAT64 or by 6to4.
fn ipv4_inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [first, second, third, .., sixth, seventh, eighth] = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match (first, second, sixth) {
        (0, 0, 0 | 0xffff) | (0x64, 0xff9b, _) => of(seventh, eighth),
        (0x2002, ..) => of(second, third),
        _ => None,
    }
}

/// Whether an address is of this machine, of a private network or of a provider's inner one.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => {
            let inside = ipv4_inside(address).is_some_and(is_private_v4);
            inside || address.is_loopback() || address.is_unspecified() || address.is_unique_local()
        }
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    address.is_private() || address.is_loopback() || address.is_unspecified() || shared
}

fn is_metadata_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || METADATA_V4.contains(&address)
}

/// Alibaba Cloud, Azure's host agent, Oracle Cloud.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

/// Amazon's instances and pods, Google Cloud.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::tests::settings;
    use super::super::{Call, CallError, SetupError, Upstream};
    use super::*;

    #[test]
    fn metadata_addresses_are_known_in_every_spelling() {
        for host in [
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "[::ffff:169.254.169.254]",
            "[::a9fe:a9fe]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "100.100.100.200",
        ] {
            let url = Url::parse(&format!("http://{host}/v1")).unwrap();
            assert!(metadata_literal(&url).is_some(), "{host}");
        }
        for host in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "[::1]", "localhost", "[fd00::1]", "8.8.8.8"] {
            let url = Url::parse(&format!("http://{host}/v1")).unwrap();
            assert_eq!(metadata_literal(&url), None, "{host}");
        }
    }

    #[test]
    fn private_addresses_are_known() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fd12::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2002:808:808::1"] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }

    /// A name that is harmless at first and then moves is found out at the next connection.
    #[tokio::test]
    async fn fault_F11_dns_and_rebind() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let good = listener.local_addr().unwrap();
        let bad = SocketAddr::from(([169, 254, 169, 254], good.port()));
        let answers = Mutex::new(vec![vec![bad], vec![bad, good], vec![good]]);
        let guard = Guard::new(Arc::new(move |_| {
            let found = answers.lock().unwrap().pop().unwrap_or_default();
            Box::pin(async move { Ok(found) })
        }));
        let served = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.write_all(head.as_bytes()).await.unwrap();
            }
        });
        let url = format!("http://models.example:{}/v1", good.port());
        let upstream = Upstream::guarded(settings(&url), guard).unwrap();
        let call = async || {
            let slot = upstream.slot(false).await?;
            upstream.post(slot, Call::Chat, Bytes::from_static(b"{}"), upstream.deadline()).await
        };
        for _ in 0..2 {
            assert_eq!(call().await.unwrap().collect().await.unwrap(), "{}");
        }
        served.await.unwrap();
        assert_eq!(call().await.unwrap_err(), CallError::Unreachable("main".to_owned()));
    }

    #[test]
    fn a_metadata_address_must_be_asked_for() {
        let mut settings = settings("http://169.254.169.254/v1");
        assert!(matches!(Upstream::new(settings.clone()), Err(SetupError::Metadata(_))));
        settings.allow_metadata = true;
        assert!(Upstream::new(settings).is_ok());
        assert!(matches!(
            Upstream::new(super::super::tests::settings("http://[::1/v1")),
            Err(SetupError::Url(_))
        ));
    }

    #[test]
    fn a_key_must_fit_into_a_header() {
        let mut settings = settings("http://127.0.0.1/v1");
        settings.key = Some("one\ntwo".to_owned().into());
        assert!(matches!(Upstream::new(settings), Err(SetupError::Key)));
    }
}
