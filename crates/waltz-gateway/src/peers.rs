//! How many connections each address holds. One peer that opens connections without end must not take
//! the files that everybody else's need.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections that are open, by address.
#[derive(Debug, Default)]
pub struct Peers {
    open: Mutex<HashMap<IpAddr, Peer>>,
}

#[derive(Debug, Default)]
struct Peer {
    connections: usize,
    /// A connection was refused since the last one was let in.
    refused: bool,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub struct Place {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Peers {
    /// A place for one more connection of an address, or `None` when it holds `most` already.
    pub fn admit(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = subscriber(address);
        let mut open = self.open();
        let peer = open.entry(address).or_default();
        if peer.connections >= most {
            if !peer.refused {
                tracing::warn!(%address, most, "a peer holds too many connections; more are refused");
            }
            peer.refused = true;
            return None;
        }
        peer.connections += 1;
        peer.refused = false;
        Some(Place { peers: Arc::clone(self), address })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, Peer>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.peers.open();
        if let Some(peer) = open.get_mut(&self.address) {
            peer.connections -= 1;
            if peer.connections == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// Whoever has one address of version 6 usually has 2^64 of them: the first half tells peers apart.
fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_own_places_and_gets_them_back() {
        let peers = Arc::new(Peers::default());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = peers.admit(address("10.0.0.1"), 2);
        let second = peers.admit(address("::ffff:10.0.0.1"), 2);
        assert!(first.is_some() && second.is_some());
        assert!(peers.admit(address("10.0.0.1"), 2).is_none(), "both spellings are one peer");
        let other = peers.admit(address("10.0.0.2"), 2);
        assert!(other.is_some());
        drop(first);
        assert!(peers.admit(address("10.0.0.1"), 2).is_some());
        drop((second, other));
        assert!(peers.open().is_empty(), "nothing is kept of peers that are gone");
    }

    #[test]
    fn a_network_of_version_6_is_one_peer() {
        let peers = Arc::new(Peers::default());
        let place = peers.admit("2001:db8:1:2::1".parse().unwrap(), 1);
        assert!(place.is_some());
        assert!(peers.admit("2001:db8:1:2:ffff::9".parse().unwrap(), 1).is_none());
        assert!(peers.admit("2001:db8:1:3::1".parse().unwrap(), 1).is_some());
    }
}
