"""Tests of epochal.records.secrets.secret_names."""

from __future__ import annotations

from canaries import LOOK_ALIKES
from epochal.records.secrets.secret_names import is_secret_name

_SECRET = """
password passwd db_password userPassword DBPASSWORD passphrase ssh-key-passphrase db_pwd SMTP_PASS
api_key apiKey API-KEY x-api-key apikey OPENAI_API_KEY api_keys secret client_secret SECRET_KEY
aws_secret_access_key AWSAccessKeyId private_key PRIVATE-KEY signing_key account_key AccountKey
token auth_token accessToken HF_TOKEN GITHUB_TOKEN hub_token bot_token refresh_token token_value
credential credentials Authorization proxy-authorization Cookie Set-Cookie cookies dsn SENTRY_DSN
notify.0.password api_keys.1 secrets.database cookies.session password_hash connection_string
webhook_url authtoken NPM_AUTH smtp.pass notify.0.pass db.pass
"""
SECRET = _SECRET.split()


def test_secrets_are_recognised_by_name_and_look_alikes_are_not() -> None:
    assert [name for name in SECRET if not is_secret_name(name)] == []
    assert [name for name in LOOK_ALIKES if is_secret_name(name)] == []
    assert len(set(LOOK_ALIKES)) >= 40
