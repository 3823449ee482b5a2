"""Pure decisions about retained messages: policies, learners, replay evaluation and the policy file."""
