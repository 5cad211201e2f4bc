"""Columns of KuaiRand's files that preprocess_*.py use."""

ACTIONS = [
    "is_click", "is_like", "is_follow", "is_comment",
    "is_forward", "is_hate", "long_view", "is_profile_enter",
]  # fmt: skip
CONTEXT = [
    "user_active_degree", "follow_user_num_range", "fans_user_num_range",
    "friend_user_num_range", "register_days_range",
]  # fmt: skip
