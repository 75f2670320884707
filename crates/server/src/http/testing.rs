//! Routes without a connection.

use axum::body::Body;
use http_body_util::BodyExt as _;

use super::*;

/// The status and the body of an answer.
pub(crate) fn ask(routes: &Router, method: &str, path: &str, body: &str) -> (u16, Bytes) {
    let request =
        hyper::Request::builder().method(method).uri(path).extension(ConnectionAddresses::LOOPBACK);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let routes = routes.clone().fallback(nowhere);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let answer = routed(routes, request).await;
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes())
    })
}

/// The same of an answer in JSON.
pub(crate) fn ask_json(
    routes: &Router,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, serde_json::Value) {
    let (status, body) = ask(routes, method, path, body);
    (status, serde_json::from_slice(&body).unwrap())
}
