//! Programs beside the server, for those who operate arrays: what state an array is in and what to do, what happened, who
//! is told, what dashboards read.
//! Owns: these verbs, their options and help texts, what they keep. Not here: asking a server (`uraid_control`), the
//! verbs that change one array (`uraid`).
//! Invariant: no verb here opens a member.
