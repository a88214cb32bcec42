//! One page over HTTP, made anew for each request: what a monitor reads.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Connections at once. Others wait.
const CONNECTIONS: usize = 16;
/// How long a request and its answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Where pages are to be had: `ADDRESS:PORT`.
///
/// # Errors
/// What is wrong with it, and how it is written.
pub fn listen(address: &str) -> Result<TcpListener, String> {
    let parsed: SocketAddr = address
        .parse()
        .map_err(|_| format!("`{address}` is no address with a port: write it like `127.0.0.1:9469`"))?;
    TcpListener::bind(parsed).map_err(|e| format!("{address}: {e}"))
}

/// Answers `GET /metrics` at `listener` with what `page` says, as long as the process lives. What `page` cannot do is
/// answered by status 503 and its reason. There is neither TLS nor a token: the address is one of this machine, or of
/// a network of monitors. One page is made at a time.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(
    listener: TcpListener,
    page: impl Fn() -> Result<String, String> + Send + Sync + 'static,
) -> io::Result<()> {
    let (page, turn) = (Arc::new(page), Arc::new(Semaphore::new(1)));
    let answer = move || {
        let (page, turn) = (Arc::clone(&page), Arc::clone(&turn));
        async move {
            let _turn = turn.acquire().await;
            let made = tokio::task::spawn_blocking(move || page()).await;
            match made.unwrap_or_else(|e| Err(e.to_string())) {
                Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
            }
        }
    };
    let router = Router::new().route("/metrics", get(answer));
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let (listener, room) =
            (tokio::net::TcpListener::from_std(listener)?, Arc::new(Semaphore::new(CONNECTIONS)));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
            let Ok((stream, _)) = listener.accept().await else {
                // No free descriptor, as a rule.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(LIMIT).keep_alive(false);
                let _ =
                    tokio::time::timeout(LIMIT, http.serve_connection(TokioIo::new(stream), service)).await;
                drop(place);
            });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{CONNECTIONS, listen, serve};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn ask(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{line}\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_page_is_made_for_each_request() {
        let listener = listen("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let made = AtomicU64::new(0);
        let page = move || match made.fetch_add(1, Ordering::Relaxed) {
            1 => Err("nobody answers".to_owned()),
            n => Ok(format!("made {n}\n")),
        };
        std::thread::spawn(move || serve(listener, page));
        assert!(ask(address, "GET /metrics HTTP/1.1").ends_with("\r\n\r\nmade 0\n"));
        let refused = ask(address, "GET /metrics HTTP/1.1");
        assert!(
            refused.starts_with("HTTP/1.1 503 ") && refused.ends_with("\r\n\r\nnobody answers\n"),
            "{refused}"
        );
        assert!(ask(address, "GET / HTTP/1.1").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "POST /metrics HTTP/1.1").starts_with("HTTP/1.1 405 "));
        assert!(ask(address, "nonsense").starts_with("HTTP/1.1 400 "));
        // Who says nothing takes a place, and no more. One is left.
        let silent: Vec<_> = (1..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, "GET /metrics HTTP/1.1").ends_with("\r\n\r\nmade 2\n"));
        drop(silent);
    }

    #[test]
    fn an_address_has_a_port() {
        let said = listen("localhost").unwrap_err();
        assert_eq!(said, "`localhost` is no address with a port: write it like `127.0.0.1:9469`");
    }
}
