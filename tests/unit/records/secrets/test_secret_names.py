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


def test_a_secret_is_known_by_its_name() -> None:
    for name in SECRET:
        assert is_secret_name(name)


def test_a_look_alike_is_kept() -> None:
    for name in LOOK_ALIKES:
        assert not is_secret_name(name)


def test_there_are_more_than_forty_look_alikes() -> None:
    assert len(set(LOOK_ALIKES)) >= 40
