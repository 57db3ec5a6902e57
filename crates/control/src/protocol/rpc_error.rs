//! The error answer of the control protocol.
//! Owns: [`RpcError`], its codes. Not here: when a call is refused.

/// An error answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The specification's code; [`RpcError::REFUSED`] for our own refusals.
    pub code: i64,
    /// Why, in one line.
    pub message: String,
}

impl RpcError {
    /// Invalid JSON.
    pub const PARSE: i64 = -32700;
    /// JSON, but not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method does not take these parameters.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The array refused the call, or the call failed.
    pub const REFUSED: i64 = -32000;
    /// The caller speaks another version of the protocol.
    pub const VERSION: i64 = -32002;
    /// The array has no such member. The caller may know it by another path.
    pub const NO_MEMBER: i64 = -32001;

    /// An error answer.
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into() }
    }

    /// A refusal, with the array's reason.
    pub fn refused(reason: impl std::fmt::Display) -> RpcError {
        RpcError::new(RpcError::REFUSED, reason.to_string())
    }
}
