//! Questions that come in at about the same time are answered together.
use std::{
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// How many may wait for the next batch. More are refused: who asks too much should know.
const QUEUE: usize = 256;
const MAX_BATCH: usize = 32;
/// How long the first of a batch waits for others.
const PATIENCE: Duration = Duration::from_millis(5);

pub struct Batcher<Question, Answer> {
    queue: SyncSender<(Question, oneshot::Sender<Answer>)>,
}

#[derive(Debug)]
pub enum Refused {
    Busy,
    /// The thread that answers is gone.
    Gone,
}

impl<Question: Send + 'static, Answer: Send + 'static> Batcher<Question, Answer> {
    /// `answer` gets one batch after the other, on a thread of its own, until the batcher is dropped.
    pub fn new(mut answer: impl FnMut(Vec<Question>) -> Vec<Answer> + Send + 'static) -> Self {
        let (queue, waiting) = sync_channel(QUEUE);
        thread::spawn(move || {
            while let Some(batch) = next_batch(&waiting) {
                let (questions, replies): (Vec<_>, Vec<oneshot::Sender<_>>) = batch.into_iter().unzip();
                for (reply, answer) in replies.into_iter().zip(answer(questions)) {
                    let _ = reply.send(answer); // whoever asked may have gone
                }
            }
        });
        Batcher { queue }
    }

    pub async fn ask(&self, question: Question) -> Result<Answer, Refused> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send((question, reply)).map_err(|e| match e {
            TrySendError::Full(_) => Refused::Busy,
            TrySendError::Disconnected(_) => Refused::Gone,
        })?;
        answer.await.map_err(|_| Refused::Gone)
    }
}

fn next_batch<T>(waiting: &Receiver<T>) -> Option<Vec<T>> {
    let mut batch = vec![waiting.recv().ok()?];
    let deadline = Instant::now() + PATIENCE;
    while batch.len() < MAX_BATCH
        && let Ok(next) = waiting.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        batch.push(next);
    }
    Some(batch)
}
