//! `stop` of a running array.
//! Owns: when it is refused. Not here: the stop itself (`session`), how calls arrive (`control_socket`).

use super::Overseer;
use serde_json::{Value, json};
use std::time::Duration;
use uraid_block::sizes::counted;
use uraid_control::log::with_causes;
use uraid_control::protocol::RpcError;

/// How long a client that is counted as connected, or a file that is counted as open, may take to leave. The kernel
/// tells of the end of a file after close(2) has returned, so `dd of=FILE; uraid stop ARRAY` finds it open at first.
const LEAVING_TIME_MAX: Duration = Duration::from_secs(1);
/// How often to check whether they have left.
const LEAVING_PERIOD: Duration = Duration::from_millis(20);

impl Overseer {
    /// Stops all arrays of the process. `all`: that there are others was known. `force`: also while clients may write.
    pub(super) async fn stop_all_arrays(&self, all: bool, force: bool) -> Result<Value, RpcError> {
        self.session.answer_is_due();
        let others = self.others();
        if !all && !others.is_empty() {
            let (name, others) = (self.name(), others.join(", "));
            let text =
                format!("{name} is not stopped alone: the same process serves {others}; --all stops all of them");
            return Err(RpcError::refused(text));
        }
        if !force {
            self.wait_until_clients_have_left().await?;
        }
        self.session.stop().await.map_err(|error| RpcError::refused(with_causes(&error)))?;
        Ok(json!({ "stopped": true }))
    }

    async fn wait_until_clients_have_left(&self) -> Result<(), RpcError> {
        let local = self.session.local();
        let began = local.now();
        while let Some(text) = self.clients_in_the_way().await {
            if local.now().since(began) >= LEAVING_TIME_MAX {
                return Err(RpcError::refused(text));
            }
            local.sleep(LEAVING_PERIOD).await;
        }
        Ok(())
    }

    /// Why a stop is refused now. `None`: it is not, or has begun.
    async fn clients_in_the_way(&self) -> Option<String> {
        if self.session.is_stopping() {
            return None;
        }
        let (_, clients) = self.session.counts(self.index).await;
        if clients.writers > 0 {
            return Some(format!(
                "{}: {} connected, so a file system on it may be mounted; unmount it and disconnect all clients, or \
                 stop --force",
                self.name(),
                counted(clients.writers, "client with write access is", "clients with write access are")
            ));
        }
        let text = self.session.setup().frontends.list.iter().find_map(|frontend| frontend.in_use())?;
        Some(format!("{}: {text}, or stop --force", self.name()))
    }
}
