"""Texts in the form of secrets, none of them valid, and names that only look like secrets."""

from __future__ import annotations

_LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzAbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
_HEX = "0123456789abcdef" * 4

TOKENS = {  # in two parts, so that secret scanners do not report this file
    "aws": "AKIA" + "Q3EXAMPLE7CANARY",
    "aws_session": "ASIA" + "Q3EXAMPLE7CANARY",
    "google": "AI" + "za" + _LETTERS[:35],
    "google_oauth": "ya" + "29." + _LETTERS[:40],
    "google_client": "GOC" + "SPX-" + _LETTERS[:28],
    "alibaba": "LT" + "AI" + _LETTERS[:20],
    "tencent": "AK" + "ID" + _LETTERS[:32],
    "github": "gh" + "p_" + _LETTERS[:36],
    "github_app": "gh" + "s_" + _LETTERS[:36],
    "github_fine": "github" + "_pat_" + _LETTERS[:60],
    "gitlab": "gl" + "pat-" + _LETTERS[:20],
    "gitlab_runner": "gl" + "rt-" + _LETTERS[:20],
    "slack": "xo" + "xb-1234567890-" + _LETTERS[:24],
    "slack_app": "xa" + "pp-1-A123-" + _LETTERS[:24],
    "hugging_face": "h" + "f_" + _LETTERS[:34],
    "openai": "s" + "k-" + _LETTERS[:48],
    "openai_project": "s" + "k-proj-" + _LETTERS[:48],
    "anthropic": "s" + "k-ant-api03-" + _LETTERS[:48],
    "groq": "gs" + "k_" + _LETTERS[:52],
    "replicate": "r" + "8_" + _LETTERS[:37],
    "nvidia": "nv" + "api-" + _LETTERS[:64],
    "databricks": "da" + "pi" + _HEX[:32],
    "wandb_local": "local" + "-" + _HEX[:40],
    "stripe": "s" + "k_live_" + _LETTERS[:24],
    "npm": "np" + "m_" + _LETTERS[:36],
    "pypi": "py" + "pi-" + _LETTERS[:60],
    "docker": "dckr" + "_pat_" + _LETTERS[:27],
    "digital_ocean": "do" + "p_v1_" + _HEX[:64],
    "sendgrid": "S" + "G." + _LETTERS[:22] + "." + _LETTERS[:43],
    "vault": "hv" + "s." + _LETTERS[:30],
    "tailscale": "ts" + "key-auth-" + _LETTERS[:24],
    "telegram": "1234567890" + ":" + _LETTERS[:35],
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiJjYW5hcnkifQ." + _LETTERS[:43],
}

_LOOK_ALIKES = """
num_tokens tokenizer max_token_length max_tokens tokens tokens_per_second token_ids pad_token
eos_token mask_token token_dim loss_per_token num_special_token key keys key_dim key_padding_mask
primary_key cache_key public_key sort_key monkey keyboard turkey_keys secretary secretariat
secret_length passwordless password_file password_min_length compass bypass forward_pass passes
author authors authority authenticate cookiecutter cookie_jar_size dsnet credits accredited pwd_dir
PWD OLDPWD tokenize use_key_bias monitor_key query_key_value keypoint hockey tokenized_text
secrets.py lib/secrets/text.py webhook pass render.pass forward.pass smtp_passes
"""
LOOK_ALIKES = _LOOK_ALIKES.split()
"""Names whose values are kept."""
