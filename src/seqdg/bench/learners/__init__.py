"""Learners by name. A learner turns trials into records; `contract.py` says what it has to offer.

`StackLearner` trains our algorithms as one stack. `ArrayLearner` is for what is fitted once to arrays and then
predicts, such as an estimator of scikit-learn: a subclass says how, and `@register_learner("name")` names it. A file of
this folder is imported when one of its learners is first asked for.
"""
