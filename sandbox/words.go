package sandbox

// Codes lists the codes that errors can have. docs/errors.md says what each
// means and what to do.
func Codes() []string {
	return []string{
		CodeSpecInvalid, CodeLimitInvalid, CodeLanguageUnknown, CodeLanguageMissing, CodePathInvalid,
		CodeNotRegularFile, CodeFileNotFound, CodeTooLarge, CodeRequirementUnmet, CodeDriverUnknown,
		CodeDriverUnavailable, CodeTemplateUnknown, CodeNetworkUnsupported, CodeFeatureUnknown, CodeSetupFailed,
		CodeProtocol, CodeInternal, CodeCommandNotFound, CodeCommandNotRunnable, CodeResourceUnavailable,
		CodePortClosed, CodeBuildFailed, CodePackagesFailed, CodeStartFailed, CodeEndpointDenied, CodeProfileUnknown, CodeProfileDenied, CodeManifestInvalid, CodeUnauthorized, CodeForbidden, CodeNotFound, CodeConflict, CodeBusy, CodeQuotaExceeded,
		CodeIdempotency, CodeGone, CodeRequestInvalid, CodeUnsafeArchive, CodeStateCorrupt, CodeInsufficient, CodeAuditUnavailable, CodeReceiptInvalid,
		CodeConfigInvalid, CodeShuttingDown, CodeDisconnected, CodeOffsetGone, CodeMethodForbidden, CodeWithheld,
		CodePolicyRefused, CodeApprovalDenied, CodeApprovalTimeout,
	}
}

// CauseKinds lists why a program or a sandbox can have ended. docs/errors.md
// says what each means.
func CauseKinds() []CauseKind {
	return []CauseKind{
		CauseExited, CauseSignaled, CauseWallTime, CauseCPUTime, CauseMemory, CauseProcesses, CauseDisk, CauseInodes,
		CauseOutput, CauseOpenFiles, CauseFileSize, CauseSyscall, CauseCancelled, CauseLost, CauseTTL, CauseIdle,
		CauseDestroyed,
	}
}
