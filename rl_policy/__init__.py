"""Pure decisions about retained messages: policies, learners, replay evaluation and the policy file.

Nothing here knows of MQTT, sockets or clocks: times, counts and records go in, waits and debts come out.
"""

from rl_policy.bootstrap import Interval, bootstrap_mean
from rl_policy.censoring import censoring_weights
from rl_policy.cost import CostModel, CostModelError
from rl_policy.debts import Debt, DebtBook, Promise
from rl_policy.features import Features, Presence, features_of
from rl_policy.gaps import GapStatistics, GapTable, TimeWentBackError
from rl_policy.gate import Gate, Verdict, is_held_out
from rl_policy.learned import ACTIONS, LearnedPolicy, WrongCostModelError
from rl_policy.mdp import PaperModel, always_send, average_reward, discounted_reward, greedy, value_iteration
from rl_policy.policies import Choice, DuePolicy, Policy, RateThresholdPolicy, RenewalPolicy, SendPolicy
from rl_policy.policy_file import (
    NotAPolicyFileError,
    PolicyFile,
    PolicyFileDamagedError,
    PolicyFileError,
    PolicyFileUnreadableError,
    PolicyFileVersionError,
    PolicyNotAdmittedError,
    decode_policy,
    encode_policy,
    read_policy,
    write_policy,
)
from rl_policy.q_learning import DECAYING_RATE, PAPER_RATE, LearningRate, q_learning
from rl_policy.q_waiting import QWaitingPolicy
from rl_policy.records import Batch, DecisionRecord
from rl_policy.renewal import ExponentialPrior, renewal_wait
from rl_policy.replay import Outcome, batch_of, clairvoyant, outcome_of, outcome_of_waits, records_of
from rl_policy.training import Caution, StatisticsError, TrainingStatistics
from rl_policy.worlds import WORLDS, Trace, make_traces

__all__ = [
    "ACTIONS",
    "DECAYING_RATE",
    "PAPER_RATE",
    "WORLDS",
    "Batch",
    "Caution",
    "Choice",
    "CostModel",
    "CostModelError",
    "Debt",
    "DebtBook",
    "DecisionRecord",
    "DuePolicy",
    "ExponentialPrior",
    "Features",
    "GapStatistics",
    "GapTable",
    "Gate",
    "Interval",
    "LearnedPolicy",
    "LearningRate",
    "NotAPolicyFileError",
    "Outcome",
    "PaperModel",
    "Policy",
    "PolicyFile",
    "PolicyFileDamagedError",
    "PolicyFileError",
    "PolicyFileUnreadableError",
    "PolicyFileVersionError",
    "PolicyNotAdmittedError",
    "Presence",
    "Promise",
    "QWaitingPolicy",
    "RateThresholdPolicy",
    "RenewalPolicy",
    "SendPolicy",
    "StatisticsError",
    "TimeWentBackError",
    "Trace",
    "TrainingStatistics",
    "Verdict",
    "WrongCostModelError",
    "always_send",
    "average_reward",
    "batch_of",
    "bootstrap_mean",
    "censoring_weights",
    "clairvoyant",
    "decode_policy",
    "discounted_reward",
    "encode_policy",
    "features_of",
    "greedy",
    "is_held_out",
    "make_traces",
    "outcome_of",
    "outcome_of_waits",
    "q_learning",
    "read_policy",
    "records_of",
    "renewal_wait",
    "value_iteration",
    "write_policy",
]
