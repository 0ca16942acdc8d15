"""Run the feature proxy: `python -m services.feature_proxy`, settings TURNOUT_FEATURE_PROXY_NAME."""

from services.chassis.lifecycle import run
from services.feature_proxy.app import build
from services.feature_proxy.config import FeatureProxyConfig

run("feature_proxy", FeatureProxyConfig, build)
