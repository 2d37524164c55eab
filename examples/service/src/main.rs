//! An HTTP service that tells what kind of file it is given: `service [ADDRESS]`. Requests that come at the same time run as one batch.
mod batch;
mod detect;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use batch::{Batcher, Refused};
use detect::{Detector, Features, Kind, MIN_BYTES, features};
use std::{
    env,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

struct Service {
    batcher: Batcher<Features, Result<Kind, String>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    batches: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let counts = Arc::new(Counts::default());
    let service = Arc::new(Service { batcher: batcher(Detector::new()?, counts.clone()), counts });
    let routes = Router::new().route("/detect", post(detect)).route("/metrics", get(metrics)).with_state(service);

    let listener = TcpListener::bind(env::args().nth(1).as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on {}", listener.local_addr()?);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    // Whoever has asked by then is answered.
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    println!("stopped");
    Ok(())
}

fn batcher(mut detector: Detector, counts: Arc<Counts>) -> Batcher<Features, Result<Kind, String>> {
    Batcher::new(move |files: Vec<Features>| {
        counts.batches.fetch_add(1, Relaxed);
        counts.files.fetch_add(files.len() as u64, Relaxed);
        match detector.detect(&files) {
            Ok(kinds) => kinds.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error.to_string()); files.len()],
        }
    })
}

async fn detect(State(service): State<Arc<Service>>, file: Bytes) -> Result<Json<Kind>, (StatusCode, String)> {
    let too_short = || (StatusCode::BAD_REQUEST, format!("send a file of at least {MIN_BYTES} bytes"));
    let features = features(&file).ok_or_else(too_short)?;
    match service.batcher.ask(features).await {
        Ok(Ok(kind)) => Ok(Json(kind)),
        Ok(Err(error)) => Err((StatusCode::INTERNAL_SERVER_ERROR, error)),
        Err(Refused::Busy) => Err((StatusCode::SERVICE_UNAVAILABLE, "too many requests at once".into())),
        Err(Refused::Gone) => Err((StatusCode::INTERNAL_SERVER_ERROR, "the model is gone".into())),
    }
}

async fn metrics(State(service): State<Arc<Service>>) -> String {
    let Counts { files, batches } = &*service.counts;
    format!("files {}\nbatches {}\n", files.load(Relaxed), batches.load(Relaxed))
}
