"""Every error a broker can answer with, as the exception class that kafka-python's users catch.

The codes are Kafka's; what a class is derived from says what the caller may do about it.
"""

from __future__ import annotations

from ottla.client.errors import AuthorizationError, BrokerResponseError, InvalidMetadataError, RetriableError


class NoError(BrokerResponseError):
    errno = 0


class OffsetOutOfRangeError(BrokerResponseError):
    errno = 1


class CorruptRecordError(BrokerResponseError):
    errno = 2


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    errno = 3


class InvalidFetchRequestError(BrokerResponseError):
    errno = 4


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 5


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    errno = 6


class RequestTimedOutError(RetriableError, BrokerResponseError):
    errno = 7


class BrokerNotAvailableError(BrokerResponseError):
    errno = 8


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 9


class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10


class StaleControllerEpochError(BrokerResponseError):
    errno = 11


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    errno = 13


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    errno = 14


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    errno = 15


class NotCoordinatorError(RetriableError, BrokerResponseError):
    errno = 16


class InvalidTopicError(BrokerResponseError):
    errno = 17


class RecordListTooLargeError(BrokerResponseError):
    errno = 18


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    errno = 19


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    errno = 20


class InvalidRequiredAcksError(BrokerResponseError):
    errno = 21


class IllegalGenerationError(BrokerResponseError):
    errno = 22


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23


class InvalidGroupIdError(BrokerResponseError):
    errno = 24


class UnknownMemberIdError(BrokerResponseError):
    errno = 25


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26


class RebalanceInProgressError(BrokerResponseError):
    errno = 27


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28


class TopicAuthorizationFailedError(AuthorizationError):
    errno = 29


class GroupAuthorizationFailedError(AuthorizationError):
    errno = 30


class ClusterAuthorizationFailedError(AuthorizationError):
    errno = 31


class InvalidTimestampError(BrokerResponseError):
    errno = 32


class UnsupportedSaslMechanismError(BrokerResponseError):
    errno = 33


class IllegalSaslStateError(BrokerResponseError):
    errno = 34


class UnsupportedVersionError(BrokerResponseError):
    errno = 35


class IncompatibleBrokerVersion(UnsupportedVersionError):
    pass


class TopicAlreadyExistsError(BrokerResponseError):
    errno = 36


class InvalidPartitionsError(BrokerResponseError):
    errno = 37


class InvalidReplicationFactorError(BrokerResponseError):
    errno = 38


class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = 39


class InvalidConfigurationError(BrokerResponseError):
    errno = 40


class NotControllerError(RetriableError, BrokerResponseError):
    errno = 41


class InvalidRequestError(BrokerResponseError):
    errno = 42


class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = 43


class PolicyViolationError(BrokerResponseError):
    errno = 44


class OutOfOrderSequenceNumberError(BrokerResponseError):
    errno = 45


class DuplicateSequenceNumberError(BrokerResponseError):
    errno = 46


class InvalidProducerEpochError(BrokerResponseError):
    errno = 47


class InvalidTxnStateError(BrokerResponseError):
    errno = 48


class InvalidProducerIdMappingError(BrokerResponseError):
    errno = 49


class InvalidTransactionTimeoutError(BrokerResponseError):
    errno = 50


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    errno = 51


class TransactionCoordinatorFencedError(BrokerResponseError):
    errno = 52


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    errno = 53


class SecurityDisabledError(BrokerResponseError):
    errno = 54


class OperationNotAttemptedError(BrokerResponseError):
    errno = 55


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    errno = 56


class LogDirNotFoundError(BrokerResponseError):
    errno = 57


class SaslAuthenticationFailedError(BrokerResponseError):
    errno = 58


class UnknownProducerIdError(BrokerResponseError):
    errno = 59


class ReassignmentInProgressError(BrokerResponseError):
    errno = 60


class DelegationTokenAuthDisabledError(BrokerResponseError):
    errno = 61


class DelegationTokenNotFoundError(BrokerResponseError):
    errno = 62


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    errno = 63


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    errno = 64


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    errno = 65


class DelegationTokenExpiredError(BrokerResponseError):
    errno = 66


class InvalidPrincipalTypeError(BrokerResponseError):
    errno = 67


class NonEmptyGroupError(BrokerResponseError):
    errno = 68


class GroupIdNotFoundError(BrokerResponseError):
    errno = 69


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    errno = 70


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    errno = 71


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    errno = 72


class TopicDeletionDisabledError(BrokerResponseError):
    errno = 73


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    errno = 74


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    errno = 75


class UnsupportedCompressionTypeError(BrokerResponseError):
    errno = 76


class StaleBrokerEpochError(BrokerResponseError):
    errno = 77


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    errno = 78


class MemberIdRequiredError(BrokerResponseError):
    errno = 79


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 80


class GroupMaxSizeReachedError(BrokerResponseError):
    errno = 81


class FencedInstanceIdError(BrokerResponseError):
    errno = 82


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 83


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    errno = 84


class NoReassignmentInProgressError(BrokerResponseError):
    errno = 85


class GroupSubscribedToTopicError(BrokerResponseError):
    errno = 86


class InvalidRecordError(BrokerResponseError):
    errno = 87


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    errno = 88


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    errno = 89


class ProducerFencedError(BrokerResponseError):
    errno = 90


class ResourceNotFoundError(BrokerResponseError):
    errno = 91


class DuplicateResourceError(BrokerResponseError):
    errno = 92


class UnacceptableCredentialError(BrokerResponseError):
    errno = 93


class InconsistentVoterSetError(BrokerResponseError):
    errno = 94


class InvalidUpdateVersionError(BrokerResponseError):
    errno = 95


class FeatureUpdateFailedError(BrokerResponseError):
    errno = 96


class PrincipalDeserializationFailureError(BrokerResponseError):
    errno = 97


class SnapshotNotFoundError(BrokerResponseError):
    errno = 98


class PositionOutOfRangeError(BrokerResponseError):
    errno = 99


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno = 100


class DuplicateBrokerRegistrationError(BrokerResponseError):
    errno = 101


class BrokerIdNotRegisteredError(BrokerResponseError):
    errno = 102


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno = 103


class InconsistentClusterIdError(BrokerResponseError):
    errno = 104


class TransactionalIdNotFoundError(BrokerResponseError):
    errno = 105


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    errno = 106


class IneligibleReplicaError(BrokerResponseError):
    errno = 107


class NewLeaderElectedError(BrokerResponseError):
    errno = 108


class OffsetMovedToTieredStorageError(BrokerResponseError):
    errno = 109


class FencedMemberEpochError(BrokerResponseError):
    errno = 110


class UnreleasedInstanceIdError(BrokerResponseError):
    errno = 111


class UnsupportedAssignorError(BrokerResponseError):
    errno = 112


class StaleMemberEpochError(BrokerResponseError):
    errno = 113


class MismatchedEndpointTypeError(BrokerResponseError):
    errno = 114


class UnsupportedEndpointTypeError(BrokerResponseError):
    errno = 115


class UnknownControllerIdError(BrokerResponseError):
    errno = 116


class UnknownSubscriptionIdError(BrokerResponseError):
    errno = 117


class TelemetryTooLargeError(BrokerResponseError):
    errno = 118


class InvalidRegistrationError(BrokerResponseError):
    errno = 119


class TransactionAbortableError(BrokerResponseError):
    errno = 120


class InvalidRecordStateError(BrokerResponseError):
    errno = 121


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    errno = 122


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    errno = 123


class FencedStateEpochError(BrokerResponseError):
    errno = 124


class InvalidVoterKeyError(BrokerResponseError):
    errno = 125


class DuplicateVoterError(BrokerResponseError):
    errno = 126


class VoterNotFoundError(BrokerResponseError):
    errno = 127


class InvalidRegularExpressionError(BrokerResponseError):
    errno = 128


class RebootstrapRequiredError(BrokerResponseError):
    errno = 129


class StreamsInvalidTopologyError(BrokerResponseError):
    errno = 130


class StreamsInvalidTopologyEpochError(BrokerResponseError):
    errno = 131


class StreamsTopologyFencedError(BrokerResponseError):
    errno = 132


class ShareSessionLimitReachedError(RetriableError, BrokerResponseError):
    errno = 133


class UnknownError(BrokerResponseError):
    errno = -1
