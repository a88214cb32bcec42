//! What each worker of a bridge runs.

use super::BoxedIo;
use crate::bridge::Bridge;
use crate::crew::Member;
use crate::direction::Direction;
use crate::direction::hand::Hand;
use crate::fail_open::{self, Failing};
use crate::worker::{Pace, Task};
use std::io;
use weir_io::{IoStats, Socket};

fn too_few() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a worker has no socket or no port")
}

/// The tasks of as many workers as there are paces: a bridge over these sockets (left, right), whose counters go
/// on from `stats`.
///
/// # Errors
/// A way in that does not go with two workers, or fewer sockets or directions than more of them need.
pub(crate) fn tasks(
    sockets: [Vec<Socket>; 2],
    stats: [IoStats; 2],
    directions: Vec<Direction>,
    failing: Failing,
    paces: &[Pace],
) -> io::Result<Vec<Task<BoxedIo, BoxedIo>>> {
    let [left, right] = sockets;
    let mut sockets = left.into_iter().zip(right);
    let bridges = match paces.len() {
        1 => {
            let (left, right) = sockets.next().ok_or_else(too_few)?;
            vec![Bridge::new(left.resumed(stats[0]), right.resumed(stats[1]), directions)]
        }
        2 => {
            let (left, right) = sockets.next().ok_or_else(too_few)?;
            let ([from_left, to_left], [from_right, to_right]) = (left.halves()?, right.halves()?);
            let bridge = |([left, right], direction): ([Socket; 2], Direction)| {
                Bridge::new(left.resumed(stats[0]), right.resumed(stats[1]), [direction])
            };
            [[from_left, to_right], [to_left, from_right]].into_iter().zip(directions).map(bridge).collect()
        }
        count => shared(count, sockets, directions)?,
    };
    let failing = fail_open::for_workers(failing, bridges.len());
    let task = |((mut bridge, failing), &pace): ((Bridge<_, _>, _), &Pace)| {
        bridge.fail(failing);
        Task::new(bridge, pace)
    };
    Ok(bridges.into_iter().zip(failing).zip(paces).map(task).collect())
}

/// What each of so many workers runs that divide both directions between them: its own two sockets and two directions.
fn shared(
    count: usize,
    mut sockets: impl Iterator<Item = (Socket, Socket)>,
    directions: Vec<Direction>,
) -> io::Result<Vec<Bridge<BoxedIo, BoxedIo>>> {
    let members = Member::all(count)?;
    let mut hands = Hand::all(&members).into_iter().zip(Hand::all(&members));
    let mut directions = directions.into_iter();
    let bridge = |member| {
        let (left, right) = sockets.next().ok_or_else(too_few)?;
        let own = directions.next().zip(directions.next()).zip(hands.next());
        let ((mut forth, mut back), (to_right, to_left)) = own.ok_or_else(too_few)?;
        forth.is_part(to_right);
        back.is_part(to_left);
        let mut bridge = Bridge::new(left.io(), right.io(), [forth, back]);
        bridge.is_of(member);
        Ok(bridge)
    };
    members.into_iter().map(bridge).collect()
}
